"""What was aimed at, as data: bounds on ratios of times, on seconds, errors and memory."""

NUMPYRO_STEP, PYRO_STEP = 1.0, 10.0  # lower limits on the peer's time of a step over that of naive
JOINT = {  # upper limits on the time of a step over that of naive
    "mnist": {"joint, fixed batches": 1.8, "joint_svrg": 1.5, "joint_glm": 1.5},
    "ppca": {"joint, fixed batches": 2.5, "joint_svrg": 2.8},
    "tennis": {"joint, fixed batches": 2.5, "joint_svrg": 1.2, "joint_glm": 1.2},
    "movielens": {"joint, fixed batches": 2.5, "joint_svrg": 1.6, "joint_glm": 1.6},
}
JOINT_PEER = {"mnist": 3.0}  # lower limits on NumPyro's time over that of naive; 1 for the others
MEMORY, SWEEPS = 100, 300  # MB of joint above naive on mnist; seconds of the sweeps on two cores
FIT = 1.0  # upper limit on the time of a fit over that of NumPyro's SVI
DEVICES = 1.0  # upper limit on the time of a step on devices over that of NumPyro's SVI
RQMC, FEW, PARTICLES_PEER = 1.3, 10.0, 1.0  # upper limit on rqmc over mc; lower: N = 100 over N = 1, peers over mc
VARIANCE = {"hlr": 0.2, "blr": 0.2}  # upper limits on the variance of rqmc over that of mc
BY_HAND = 1.0  # upper limit on the time of naive and of the default over that of a loop by hand in PyTorch
SNES, PYCMA = 1.0, 3.0  # lower limits on the time of a peer's evaluation over that of fast_ingo and ingo
GENERATION = {"fast_ingo": 40.0, "ingo": 200.0}  # upper limits, us of one of 20 mapped runs
INTEGRAL_ERROR = {
    "control_functional": {10: 2.4, 50: 0.011, 150: 0.0005},
    "vector_valued": {10: 0.35, 50: 0.0025, 150: 0.0001},
}
INTEGRAL_SECONDS = {10: 0.1, 50: 0.2, 150: 2.0}  # of vector_valued
PAPER = 1.0  # upper limit on the time of vector_valued over that of the paper's method
SHARED_POINTS = 1.0  # seconds of ten tasks at 500 shared points
