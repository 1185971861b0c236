# Downloads raw files (or copies them from LOWVAR_DATA_MIRROR) and prepares arrays.

for name, dataset in DATASETS.items():
    if dataset.files:

        rule:
            name: f"fetch_{name}"
            localrule: True  # needs network access
            output:
                [f"{DATA}/raw/{file.name}" for file in dataset.files],
            log:
                f"logs/data/fetch-{name}.log",
            benchmark:
                f"logs/data/fetch-{name}.tsv"
            params:
                dataset=name,
                raw=raw_above(f"{DATA}/raw/{dataset.files[0].name}"),
                hashes=[file.sha256 for file in dataset.files],
            shell:
                "lowvar fetch {params.dataset:q} --raw {params.raw:q} > {log:q} 2>&1"


rule prepare:
    input:
        lambda w: [f"{DATA}/raw/{file.name}" for file in DATASETS[w.dataset].files],
    output:
        f"{DATA}/prepared/{{dataset}}-{{scaling}}.npz",
    log:
        "logs/data/{dataset}-{scaling}.log",
    benchmark:
        "logs/data/{dataset}-{scaling}.tsv"
    threads: 1
    resources:
        mem_mb=lambda w, attempt: attempt * (4000 if w.scaling == "lenet" else 2000),
        runtime=lambda w, attempt: attempt * (120 if w.scaling == "lenet" else 10),  # it trains a network
    params:
        raw=raw_above(f"{DATA}/prepared/{{dataset}}-{{scaling}}.npz"),
    shell:
        "lowvar prepare {wildcards.dataset:q} --scaling {wildcards.scaling:q}"
        " --raw {params.raw:q} --out {output:q} > {log:q} 2>&1"


rule manifest:
    # hashes of an experiment's data, for DVC
    input:
        lambda w: prepared_of(w.experiment),
    output:
        f"{DATA}/prepared/{{experiment}}.sha256",
    localrule: True
    log:
        "logs/data/{experiment}.sha256.log",
    shell:
        'for file in {input:q}; do sha256sum "$file"; done > {output:q} 2> {log:q}'


rule needs:
    # what each experiment reads: DVC prepares data again only if this list changes
    output:
        f"{DATA}/needs.txt",
    localrule: True
    log:
        "logs/data/needs.log",
    params:
        needs=[f"{name} {path}" for name in PARAMS.experiments for path in prepared_of(name) or [""]],
    shell:
        r"printf '%s\n' {params.needs:q} > {output:q} 2> {log:q}"


rule data:
    localrule: True
    input:
        [f"{DATA}/prepared/{name}.sha256" for name in PARAMS.experiments],
