# Large jobs. Some of their files (timing.parquet, provenance.json) differ from run to run: DVC ignores these, and only
# the tables of seconds need them. Checkpoints are no outputs.
#   sample      draws the points that all methods of an integral experiment share
#   tune        tunes the settings of a method of a variational experiment
#   run         runs one method on one problem
#   decompose   decomposes the variance of every method on one problem

for kind, about in KINDS.items():
    where = f"{LOGS}/{{experiment}}/{about.folder}/{kind}"

    rule:
        name: kind
        input:
            from_job(kind, lambda job: paths(job.inputs.values())),
        output:
            outputs_of(kind),
        log:
            f"{where}.log",
        benchmark:
            f"{where}.tsv"
        group:
            from_job(kind, together)
        threads: 1
        resources:
            gpu=gpus,
            device=PARAMS.device,
            mem_mb=at_least(kind, lambda job: job.megabytes),
            runtime=at_least(kind, lambda job: job.minutes),
        params:
            spec=from_job(kind, lambda job: job.spec.hash),
            command=command_of(kind),
        shell:
            "{params.command} --device {resources.device:q} > {log:q} 2>&1"
