# Runs into tables, and tables into figures and claims: small jobs.


rule tables:
    input:
        lambda w: runs_of(w.experiment) + data_of(w),
    output:
        [in_report(f"tables/{name}.csv", "table", name) for name in TABLES],
        [f"{RESULTS}/{{experiment}}/tables/{name}.parquet" for name in TABLES],
        f"{RESULTS}/{{experiment}}/tables/metrics.json",
    log:
        f"{LOGS}/{{experiment}}/tables.log",
    benchmark:
        f"{LOGS}/{{experiment}}/tables.tsv"
    threads: 1
    resources:
        mem_mb=lambda w, attempt: attempt * 3000,
        runtime=lambda w, attempt: attempt * 20,
    params:
        spec=spec_hash,
        where=where,
    shell:
        "lowvar table workflow/experiments/{wildcards.experiment}.yaml {params.where} > {log} 2>&1"


rule seconds:
    # wall times differ from run to run: a file of their own, so that the other tables repeat to the byte
    input:
        lambda w: runs_of(w.experiment) + table(w, "convergence"),
    output:
        in_report("tables/seconds.csv", "table", "seconds"),
        f"{RESULTS}/{{experiment}}/tables/seconds.parquet",
    log:
        f"{LOGS}/{{experiment}}/seconds.log",
    benchmark:
        f"{LOGS}/{{experiment}}/seconds.tsv"
    threads: 1
    resources:
        mem_mb=lambda w, attempt: attempt * 3000,
        runtime=lambda w, attempt: attempt * 20,
    params:
        spec=spec_hash,
        where=where,
    shell:
        "lowvar table workflow/experiments/{wildcards.experiment}.yaml {params.where} --seconds > {log} 2>&1"


rule figure:
    input:
        lambda w: table(w, FIGURES[w.kind]),
    output:
        in_report("figures/{kind}.svg", "figure", "{kind}"),
        f"{RESULTS}/{{experiment}}/figures/{{kind}}.png",
        f"{RESULTS}/{{experiment}}/figures/{{kind}}.csv",
    log:
        f"{LOGS}/{{experiment}}/figures/{{kind}}.log",
    benchmark:
        f"{LOGS}/{{experiment}}/figures/{{kind}}.tsv"
    threads: 1
    resources:
        mem_mb=lambda w, attempt: attempt * 3000,
        runtime=lambda w, attempt: attempt * 20,
    params:
        spec=spec_hash,
        where=where,
    shell:
        "lowvar figure {wildcards.kind} workflow/experiments/{wildcards.experiment}.yaml {params.where} > {log} 2>&1"


rule claims:
    input:
        lambda w: table(w, "decomposition", "ends"),
        claims_of,
    output:
        in_report("claims.csv", "table", "claims"),
    log:
        f"{LOGS}/{{experiment}}/claims.log",
    benchmark:
        f"{LOGS}/{{experiment}}/claims.tsv"
    threads: 1
    resources:
        mem_mb=lambda w, attempt: attempt * 3000,
        runtime=lambda w, attempt: attempt * 20,
    params:
        spec=spec_hash,
        where=where,
    shell:
        "lowvar claims workflow/experiments/{wildcards.experiment}.yaml {params.where} > {log} 2>&1"
