# The big jobs. What else they leave beside their outputs (timing.parquet, provenance.json, checkpoints) differs
# from run to run, so neither Snakemake nor DVC takes it for a result.


rule sample:
    # the points that all methods of an integral experiment read
    input:
        problem_data,
    output:
        f"{RESULTS}/{{experiment}}/samples/{{problem}}/samples.npz",
    log:
        f"{LOGS}/{{experiment}}/samples/{{problem}}.log",
    benchmark:
        f"{LOGS}/{{experiment}}/samples/{{problem}}.tsv"
    threads: 1
    resources:
        gpu=gpus,
        device=PARAMS.device,
        mem_mb=lambda w, attempt: attempt * 4000,
        runtime=sample_minutes,
    params:
        spec=sample_hash,
        scale=PARAMS.scale,
        data=data_option,
        out=folder,
    shell:
        "lowvar sample workflow/experiments/{wildcards.experiment}.yaml --scale {params.scale}"
        " --problem {wildcards.problem} --device {resources.device} {params.data} --out {params.out}"
        " > {log} 2>&1"


rule tune:
    # the settings that a method of a variational experiment searches for
    input:
        problem_data,
    output:
        f"{RESULTS}/{{experiment}}/runs/{{problem}}/{{method}}-{{backend}}/tuning/study.parquet",
    log:
        f"{LOGS}/{{experiment}}/tuning/{{problem}}/{{method}}-{{backend}}.log",
    benchmark:
        f"{LOGS}/{{experiment}}/tuning/{{problem}}/{{method}}-{{backend}}.tsv"
    threads: 1
    resources:
        gpu=gpus,
        device=PARAMS.device,
        mem_mb=megabytes,
        runtime=tune_minutes,
    params:
        spec=tune_hash,
        scale=PARAMS.scale,
        data=data_option,
        out=folder,
    shell:
        "lowvar tune workflow/experiments/{wildcards.experiment}.yaml --scale {params.scale}"
        " --problem {wildcards.problem} --method {wildcards.method} --backend {wildcards.backend}"
        " --device {resources.device} {params.data} --out {params.out} > {log} 2>&1"


rule run:
    input:
        source=problem_source,
        study=study_of,
    output:
        trace=f"{RESULTS}/{{experiment}}/runs/{{problem}}/{{method}}-{{backend}}/trace.parquet",
        params=f"{RESULTS}/{{experiment}}/runs/{{problem}}/{{method}}-{{backend}}/params.npz",
    log:
        f"{LOGS}/{{experiment}}/runs/{{problem}}/{{method}}-{{backend}}.log",
    benchmark:
        f"{LOGS}/{{experiment}}/runs/{{problem}}/{{method}}-{{backend}}.tsv"
    threads: 1
    resources:
        gpu=gpus,
        device=PARAMS.device,
        mem_mb=megabytes,
        runtime=minutes,
    params:
        spec=spec_hash,
        scale=PARAMS.scale,
        data=run_options,
        out=folder,
    shell:
        "lowvar run workflow/experiments/{wildcards.experiment}.yaml --scale {params.scale}"
        " --problem {wildcards.problem} --method {wildcards.method} --backend {wildcards.backend}"
        " --device {resources.device} {params.data} --out {params.out} > {log} 2>&1"


rule decompose:
    input:
        problem_data,
    output:
        f"{RESULTS}/{{experiment}}/decomposition/{{problem}}/decomposition.parquet",
    log:
        f"{LOGS}/{{experiment}}/decomposition/{{problem}}.log",
    benchmark:
        f"{LOGS}/{{experiment}}/decomposition/{{problem}}.tsv"
    threads: 1
    resources:
        gpu=gpus,
        device=PARAMS.device,
        mem_mb=megabytes,
        runtime=minutes,
    params:
        spec=spec_hash,
        scale=PARAMS.scale,
        data=data_option,
        out=folder,
    shell:
        "lowvar decompose workflow/experiments/{wildcards.experiment}.yaml --scale {params.scale}"
        " --problem {wildcards.problem} --device {resources.device} {params.data} --out {params.out}"
        " > {log} 2>&1"
