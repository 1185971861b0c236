# `snakemake` in this folder: all that params.yaml picks. The workflow itself is workflow/Snakefile.


include: "workflow/Snakefile"


# the default target of an included file is not the includer's
rule default:
    default_target: True
    localrule: True
    input:
        rules.all.input,
