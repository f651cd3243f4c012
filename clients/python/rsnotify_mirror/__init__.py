"""A copy of a Source's resources in a directory: made, kept in step, verified.

`mirror.Mirror` is the face. `planning` reads what the Source has and records in the `state` what is
to be done; `plan` has the rules. `workers` do it, many at once: `fetch` gets a resource and checks
it, `storing` puts it in its place (`paths`, `disk`) and calls the hook; `report` says what was
done. `audit` compares a copy with its Source, `inspection` validates a whole Source, and `dumping`
makes dumps of a copy. Nothing here needs a hub: any ResourceSync Source will do.
"""
