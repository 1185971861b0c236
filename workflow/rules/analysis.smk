# Small jobs: tables from runs, figures and claims from tables. Each experiment has its own rules for tables and figures,
# because these depend on its family.


for name, study in STUDIES.items():
    steps = study.steps()

    rule:
        name: f"{name}_tables"
        input:
            paths(steps["tables"].inputs),
        output:
            [in_report(name, path, "table", path.stem) for path in study.table_files(ending="csv")],
            paths(study.table_files()),
            str(study.metrics),
        log:
            f"{LOGS}/{name}/tables.log",
        benchmark:
            f"{LOGS}/{name}/tables.tsv"
        group:
            ANALYSIS
        threads: 1
        resources:
            **small(minutes=20),
        params:
            spec=study.experiment.hash,
            name=name,
            command=step_command(name, "tables"),
        shell:
            "{params.command} > {log:q} 2>&1"

    if study.timed:

        rule:
            # wall times differ from run to run; in a separate file, they leave the other tables reproducible to the byte
            name: f"{name}_seconds"
            input:
                paths(steps["seconds"].inputs),
            output:
                [
                    in_report(name, path, "table", path.stem, caption="seconds")
                    for path in study.table_files(*study.timed, ending="csv")
                ],
                paths(study.table_files(*study.timed)),
            log:
                f"{LOGS}/{name}/seconds.log",
            benchmark:
                f"{LOGS}/{name}/seconds.tsv"
            group:
                ANALYSIS
            threads: 1
            resources:
                **small(minutes=5),
            params:
                spec=study.experiment.hash,
                name=name,
                command=step_command(name, "seconds"),
            shell:
                "{params.command} > {log:q} 2>&1"

    for drawn_by, kinds in study.drawn.items():

        rule:
            name: f"{name}_{drawn_by}"
            input:
                paths(steps[drawn_by].inputs),
            output:
                [
                    in_report(name, path, "figure", kind, caption=caption_of(name, kind))
                    for kind, path in zip(kinds, study.figure_files(*kinds))
                ],
                paths(study.figure_files(*kinds, ending="png") + study.figure_files(*kinds, ending="csv")),
            log:
                f"{LOGS}/{name}/{drawn_by}.log",
            benchmark:
                f"{LOGS}/{name}/{drawn_by}.tsv"
            group:
                ANALYSIS
            threads: 1
            resources:
                **small(minutes=5),
            params:
                spec=study.experiment.hash,
                command=step_command(name, drawn_by),
            shell:
                "{params.command} > {log:q} 2>&1"


NOTHING = "(?!)"  # matches no name
WITH_CLAIMS = [name for name, study in STUDIES.items() if study.claims]
WITHOUT_CLAIMS = [name for name in STUDIES if name not in WITH_CLAIMS]


rule claims:
    wildcard_constraints:
        experiment="|".join(WITH_CLAIMS) or NOTHING,
    input:
        lambda w: paths(STUDIES[w.experiment].steps()["claims"].inputs),
        lambda w: repository(STUDIES[w.experiment].steps()["claims"].beside),
    output:
        in_report("{experiment}", ANY.verdicts, "table", "claims", caption="claims"),
        str(ANY.verdicts.with_suffix(".parquet")),
    log:
        f"{LOGS}/{{experiment}}/claims.log",
    benchmark:
        f"{LOGS}/{{experiment}}/claims.tsv"
    group:
        ANALYSIS
    threads: 1
    resources:
        **small(minutes=5),
    params:
        spec=lambda w: STUDIES[w.experiment].experiment.hash,
        command=lambda w, output: step_command(w.experiment, "claims")(w, output),
    shell:
        "{params.command} > {log:q} 2>&1"


# an empty file, which is no page of the report
use rule claims as no_claims with:
    wildcard_constraints:
        experiment="|".join(WITHOUT_CLAIMS) or NOTHING,
    output:
        str(ANY.verdicts),
        str(ANY.verdicts.with_suffix(".parquet")),
