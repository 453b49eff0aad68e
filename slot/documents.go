package slot

import (
	"time"

	"github.com/jackc/pglogrepl"
)

// The documents are rows of PostgreSQL's catalogue as JSON; their keys are the catalogue's column names.

type slotDoc struct {
	Name               string     `json:"slot_name"`
	Plugin             *string    `json:"plugin"`
	Type               string     `json:"slot_type"`
	Database           *string    `json:"database"`
	Temporary          bool       `json:"temporary"`
	TwoPhase           bool       `json:"two_phase"`
	Active             bool       `json:"active"`
	ActivePID          *int32     `json:"active_pid"`
	RestartLSN         *jsonLSN   `json:"restart_lsn"`
	ConfirmedFlushLSN  *jsonLSN   `json:"confirmed_flush_lsn"`
	CatalogXmin        *uint32    `json:"catalog_xmin,string"`
	WALStatus          *string    `json:"wal_status"`
	SafeWALSize        *int64     `json:"safe_wal_size"`
	Conflicting        *bool      `json:"conflicting"`
	Failover           *bool      `json:"failover"`
	Synced             *bool      `json:"synced"`
	InactiveSince      *time.Time `json:"inactive_since"`
	InvalidationReason *string    `json:"invalidation_reason"`
}

func (d slotDoc) slot(end *pglogrepl.LSN) Slot {
	return Slot{
		Name: d.Name, Plugin: orEmpty(d.Plugin), Type: d.Type, Database: orEmpty(d.Database),
		Temporary: d.Temporary, TwoPhase: d.TwoPhase, Active: d.Active, ActivePID: d.ActivePID,
		RestartLSN: d.RestartLSN.lsn(), ConfirmedFlushLSN: d.ConfirmedFlushLSN.lsn(), CatalogXmin: d.CatalogXmin,
		WALStatus: orEmpty(d.WALStatus), SafeWALBytes: d.SafeWALSize,
		RetainedBytes: behind(end, d.RestartLSN.lsn()), UnconfirmedBytes: behind(end, d.ConfirmedFlushLSN.lsn()),
		Conflicting: d.Conflicting, Failover: d.Failover, Synced: d.Synced,
		InactiveSince: d.InactiveSince, InvalidationReason: d.InvalidationReason,
	}
}

type holderDoc struct {
	PID             int32      `json:"pid"`
	ApplicationName *string    `json:"application_name"`
	Address         *string    `json:"address"`
	Since           *time.Time `json:"since"`
	State           *string    `json:"state"`
}

func (d *holderDoc) holder() *Holder {
	if d == nil {
		return nil
	}
	return &Holder{
		PID: d.PID, ApplicationName: orEmpty(d.ApplicationName), Address: orEmpty(d.Address),
		Since: d.Since, State: orEmpty(d.State),
	}
}

type publicationDoc struct {
	OID           uint32  `json:"oid"`
	AllTables     bool    `json:"puballtables"`
	Insert        bool    `json:"pubinsert"`
	Update        bool    `json:"pubupdate"`
	Delete        bool    `json:"pubdelete"`
	Truncate      bool    `json:"pubtruncate"`
	ViaRoot       bool    `json:"pubviaroot"`
	OlderThanSlot *bool   `json:"older_than_slot"`
	Member        bool    `json:"member"`
	ViaParent     *string `json:"via_parent"`
	Others        int     `json:"others"`
	Row           *struct {
		Columns   []string `json:"attnames"`
		RowFilter *string  `json:"rowfilter"`
	} `json:"row"`
}

func (d *publicationDoc) publication() *Publication {
	if d == nil {
		return nil
	}
	p := &Publication{
		OID: d.OID, AllTables: d.AllTables, Insert: d.Insert, Update: d.Update, Delete: d.Delete, Truncate: d.Truncate,
		ViaRoot: d.ViaRoot, OlderThanSlot: d.OlderThanSlot != nil && *d.OlderThanSlot, OtherTables: d.Others,
		Member: d.Member, Published: d.Row != nil, ViaParent: orEmpty(d.ViaParent),
	}
	if d.Row != nil {
		p.Columns, p.RowFilter = d.Row.Columns, d.Row.RowFilter
	}
	return p
}

type tableDoc struct {
	OID         uint32 `json:"oid"`
	Kind        string `json:"kind"`
	Unlogged    bool   `json:"unlogged"`
	IsPartition bool   `json:"is_partition"`
	PrimaryKey  bool   `json:"primary_key"`
	HasIdentity bool   `json:"has_identity"`
	Columns     []struct {
		Name      string `json:"name"`
		Type      string `json:"type"`
		NotNull   bool   `json:"not_null"`
		Generated bool   `json:"generated"`
		Identity  bool   `json:"identity"`
	} `json:"columns"`
}

func (d *tableDoc) table() *Table {
	if d == nil {
		return nil
	}
	t := &Table{
		OID: d.OID, Kind: d.Kind, Unlogged: d.Unlogged, IsPartition: d.IsPartition,
		PrimaryKey: d.PrimaryKey, HasIdentity: d.HasIdentity,
	}
	for _, c := range d.Columns {
		t.Columns = append(t.Columns, Column{
			Name: c.Name, Type: c.Type, NotNull: c.NotNull, Generated: c.Generated, IdentityAlways: c.Identity,
		})
	}
	return t
}

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
