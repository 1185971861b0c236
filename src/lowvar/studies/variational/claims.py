"""Claims about variational problems: variances of gradients, ELBOs at the end of runs and along them, sizes, times.

Those about errors of gradients along runs, held-out rows, points per step and settings are in `claims.diagnostics`.

* ``value``: a variance of the decomposition. Holds where its interval lies within ``tolerance`` of ``published``.
* ``below``: one variance against others. Holds where the intervals do not overlap.
* ``floor``: a variance divided by one that it cannot fall below, at the worst of all moments of the run. Holds where
  the ratio's interval lies above ``1 - margin`` at every moment, fails where one lies below 1. With ``within`` it is
  the ratio at the end that is to lie below that. Where the floor is a part of the variance itself, the interval is of
  shares, over the same designs.
* ``gap``: final gaps to the known optimum at the best step, as ratios over pairs of repetitions.
* ``ahead``: ELBOs after the same iterations, each at the step size that is best there, as differences over pairs.
* ``alike``: the difference of two methods' ELBOs there, in parts of the difference between the first and a third.
* ``race``: the iterations, or seconds, after which a method's ELBO is where the other's ends (or at ``level``), divided
  by what the other needs.
* ``steps``: the largest step size at which a method ends as high as the other does at its best one, divided by that.
* ``bears``: the largest step size at which no repetition diverged or ended below its start, divided by the other's.
  Undecided, as ``race`` is, with fewer than two repetitions.
* ``size``: rows or dimensions of a problem.
* ``gradients``: gradient evaluations of an iteration, in batches.
* ``time``: seconds of an iteration divided by another method's. The interval has a factor of 1.5 on either side for
  jobs that ran at different times.
* ``scheme``: a variance under a scheme of noise, divided by that with as many independent points.

Repetitions of the same number share noise and start, so differences are taken within pairs, of the repetitions that
both methods have; with fewer than two there is no interval, and the verdict is ``undecided``.
"""

from lowvar.studies.variational import claims_along as diagnostics
from lowvar.studies.variational import claims_runs as variational_runs
from lowvar.studies.variational import claims_variances as variational_variances

VariationalTest = variational_runs.RunTest | variational_variances.VarianceTest | diagnostics.DiagnosticsTest
JUDGES = variational_variances.JUDGES | variational_runs.JUDGES | diagnostics.JUDGES
