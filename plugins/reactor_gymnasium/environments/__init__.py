"""Single environments as shards step them: their observations, their infos, their wrappers, their end."""
