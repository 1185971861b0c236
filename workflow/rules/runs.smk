# The big jobs. What else they leave beside their outputs (timing.parquet, provenance.json, checkpoints) differs
# from run to run, so neither Snakemake nor DVC takes it for a result.
#   sample      the points that all methods of an integral experiment read
#   tune        the settings that a method of a variational experiment searches for
#   run         one method on one problem
#   decompose   the variance of every method on one problem, taken apart

for kind, about in KINDS.items():
    where = f"{LOGS}/{{experiment}}/{about.folder}/{kind}"

    rule:
        name: kind
        input:
            of(kind, lambda job: paths(job.inputs.values())),
        output:
            outputs_of(kind),
        log:
            f"{where}.log",
        benchmark:
            f"{where}.tsv"
        threads: 1
        resources:
            gpu=gpus,
            device=PARAMS.device,
            mem_mb=at_least(kind, lambda job: job.megabytes),
            runtime=at_least(kind, lambda job: job.minutes),
        params:
            spec=of(kind, lambda job: job.spec.hash),
            command=of(kind, lambda job: job.command),
        shell:
            "{params.command} --device {resources.device} > {log} 2>&1"
