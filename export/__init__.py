"""Everything that leaves Python: lowering, files, verification and sessions."""
