data { int N; array[N] int y; }
parameters { real<lower=0> rate; simplex[3] p; matrix[2,3] w; corr_matrix[2] L; real<lower=0,upper=rate> u; }
transformed parameters { real twice = 2 * rate; }
model { rate ~ gamma(2, 1); y ~ poisson(rate); to_vector(w) ~ normal(0, 1); p ~ dirichlet([1,2,3]'); L ~ lkj_corr(2); }
generated quantities { real extra = rate + 1; }
