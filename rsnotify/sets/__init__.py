"""The sets: what each is (`options`), its record in Redis and in every process (`records`)."""
