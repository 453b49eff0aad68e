package slot

// IsActive reports whether an error of START_REPLICATION says that somebody else holds the slot.
func IsActive(err error) bool { return sqlState(err) == codeObjectInUse }
