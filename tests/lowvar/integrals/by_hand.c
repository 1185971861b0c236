/* A model behind BridgeStan's C interface, written by hand, so that bridgestan.StanModel needs no Stan sources.

   parameters { real<lower=0> rate; matrix[2, 3] w; }
   transformed parameters { real twice = 2 * rate; }
   model { rate ~ gamma(2, 1); {3, 5, 4} ~ poisson(rate); w[i, j] ~ normal(i + 10 * j, 1); }   // i, j from 1

   So rate has the posterior gamma(14, 4). Without the Jacobian of rate = exp(theta[0]) the score is 13 - 4 rate. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const int bs_major_version = BS_MAJOR, bs_minor_version = BS_MINOR, bs_patch_version = BS_PATCH;
static int model = 1;

static int fail(char **message, const char *text) {
  *message = strdup(text);
  return -1;
}

void *bs_model_construct(const char *data, unsigned int seed, char **error) { return &model; }
void bs_model_destruct(void *m) {}
void bs_free_error_msg(char *error) { free(error); }
int bs_set_print_callback(void *callback, char **error) { return 0; }
const char *bs_name(const void *m) { return "by_hand"; }
const char *bs_model_info(const void *m) { return "written by hand"; }
const char *bs_param_names(const void *m, bool tp, bool gq) {
  return tp ? "rate,w.1.1,w.2.1,w.1.2,w.2.2,w.1.3,w.2.3,twice" : "rate,w.1.1,w.2.1,w.1.2,w.2.2,w.1.3,w.2.3";
}
const char *bs_param_unc_names(const void *m) { return "rate,w.1.1,w.2.1,w.1.2,w.2.2,w.1.3,w.2.3"; }
int bs_param_num(const void *m, bool tp, bool gq) { return tp ? 8 : 7; }
int bs_param_unc_num(const void *m) { return 7; }

int bs_param_constrain(const void *m, bool tp, bool gq, const double *free, double *theta, void *rng, char **error) {
  memcpy(theta, free, 7 * sizeof(double));
  theta[0] = exp(free[0]);
  if (tp) theta[7] = 2 * theta[0];
  return 0;
}

int bs_param_unconstrain(const void *m, const double *theta, double *free, char **error) {
  if (!(theta[0] > 0)) return fail(error, "lb_free: Lower bounded variable is not positive");
  memcpy(free, theta, 7 * sizeof(double));
  free[0] = log(theta[0]);
  return 0;
}

int bs_log_density_gradient(const void *m, bool propto, bool jacobian, const double *free, double *value, double *slope,
                            char **error) {
  double rate = exp(free[0]);
  *value = (jacobian ? 14 : 13) * free[0] - 4 * rate;
  slope[0] = (jacobian ? 14 : 13) - 4 * rate;
  for (int k = 0; k < 6; k++) {
    double away = 1 + k % 2 + 10 * (1 + k / 2) - free[1 + k];
    slope[1 + k] = away;
    *value -= away * away / 2;
  }
  return 0;
}

int bs_log_density(const void *m, bool propto, bool jacobian, const double *free, double *value, char **error) {
  double slope[7];
  return bs_log_density_gradient(m, propto, jacobian, free, value, slope, error);
}

/* of the interface, but not used here */
int bs_param_unconstrain_json(const void *m, const char *text, double *free, char **error) {
  return fail(error, "not in this model");
}
int bs_param_initialize(const void *m, const char *text, void *rng, double range, int tries, bool jacobian, double *free,
                        char **error) {
  return fail(error, "not in this model");
}
int bs_log_density_hessian(const void *m, bool propto, bool jacobian, const double *free, double *value, double *slope,
                           double *hessian, char **error) {
  return fail(error, "not in this model");
}
int bs_log_density_hessian_vector_product(const void *m, bool propto, bool jacobian, const double *free,
                                          const double *vector, double *value, double *product, char **error) {
  return fail(error, "not in this model");
}
void *bs_rng_construct(unsigned int seed, char **error) { return &model; }
void bs_rng_destruct(void *rng) {}
