# Runs into tables, and tables into figures and claims: small jobs. Each experiment has rules of its own, since its
# family says which tables and figures there are.

for name, experiment in EXPERIMENTS.items():

    rule:
        name: f"{name}_tables"
        input:
            runs_of(name) + studies_of(name) + data_of(name) + samples_of(name),
        output:
            [in_report(name, f"tables/{table}.csv", "table", table) for table in experiment.tables],
            tables_of(name),
            f"{RESULTS}/{name}/metrics.json",
        log:
            f"{LOGS}/{name}/tables.log",
        benchmark:
            f"{LOGS}/{name}/tables.tsv"
        threads: 1
        resources:
            mem_mb=lambda w, attempt: attempt * 3000,
            runtime=lambda w, attempt: attempt * 20,
        params:
            spec=experiment.hash,
            name=name,
            where=where(name),
        shell:
            "lowvar table workflow/experiments/{params.name}.yaml {params.where} > {log} 2>&1"

    rule:
        # wall times differ from run to run: a file of their own, so that the other tables repeat to the byte
        name: f"{name}_seconds"
        input:
            runs_of(name) + tables_of(name),
        output:
            in_report(name, "tables/seconds.csv", "table", "seconds"),
            f"{RESULTS}/{name}/tables/seconds.parquet",
        log:
            f"{LOGS}/{name}/seconds.log",
        benchmark:
            f"{LOGS}/{name}/seconds.tsv"
        threads: 1
        resources:
            mem_mb=lambda w, attempt: attempt * 3000,
            runtime=lambda w, attempt: attempt * 20,
        params:
            spec=experiment.hash,
            name=name,
            where=where(name),
        shell:
            "lowvar table workflow/experiments/{params.name}.yaml {params.where} --seconds > {log} 2>&1"


rule figure:
    input:
        table_of_figure,
    output:
        in_report("{experiment}", "figures/{kind}.svg", "figure", "{kind}"),
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
        where=lambda w: where(w.experiment),
    shell:
        "lowvar figure {wildcards.kind} workflow/experiments/{wildcards.experiment}.yaml {params.where} > {log} 2>&1"


rule claims:
    input:
        lambda w: tables_of(w.experiment),
        claims_of,
    output:
        in_report("{experiment}", "claims.csv", "table", "claims"),
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
        where=lambda w: where(w.experiment),
    shell:
        "lowvar claims workflow/experiments/{wildcards.experiment}.yaml {params.where} > {log} 2>&1"
