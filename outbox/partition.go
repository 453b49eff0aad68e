package outbox

import (
	"fmt"
	"time"
)

// partitionSuffix is the name of a day's partition, behind the table's.
const partitionSuffix = "_p20060102"

const maxIdentifier = 63 // bytes, NAMEDATALEN - 1

// Partition returns the name of a day's partition of an outbox table. Days are those of UTC.
func (t Table) Partition(day time.Time) Table {
	return Table{Schema: t.Schema, Name: t.Name + day.UTC().Format(partitionSuffix)}
}

// PartitionDDL returns the statements that add a day's partition to an outbox table partitioned by day. The partition is made
// on its own and then attached: writers of other partitions do not wait. The error wraps [ErrTable] if the partition's name
// would be too long.
func PartitionDDL(t Table, day time.Time) ([]string, error) {
	day = day.UTC().Truncate(24 * time.Hour)
	partition := t.Partition(day)
	if len(partition.Name) > maxIdentifier {
		return nil, fmt.Errorf("partition %s: %w", partition, ErrTable)
	}
	const form = "2006-01-02 15:04:05+00"
	name := partition.SQL()
	return []string{
		fmt.Sprintf("CREATE TABLE %s (LIKE %s INCLUDING DEFAULTS INCLUDING CONSTRAINTS)", name, t.SQL()),
		fmt.Sprintf("ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')", t.SQL(), name, day.Format(form), day.AddDate(0, 0, 1).Format(form)),
	}, nil
}
