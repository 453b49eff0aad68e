package slot

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pglogrepl"

	"github.com/seed-1cfd9858/relay/outbox"
)

func healthy() State {
	lsn := pglogrepl.LSN(100)
	return State{
		Where: "db:5432/shop", ServerVersion: 180001, WALLevel: "logical", Database: "shop", FlushLSN: &lsn,
		Slot: &Slot{
			Name: "s", Plugin: "pgoutput", Type: "logical", Database: "shop",
			RestartLSN: &lsn, ConfirmedFlushLSN: &lsn, WALStatus: "reserved",
		},
		Publication: &Publication{
			Insert: true, ViaRoot: true, OlderThanSlot: true, Member: true, Published: true,
			Columns: []string{"id", "topic", "payload", "headers"},
		},
		Table: &Table{Kind: "r", HasIdentity: true, Columns: []Column{
			{Name: "id", NotNull: true}, {Name: "topic", NotNull: true}, {Name: "payload"}, {Name: "headers"},
		}},
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	yes, reason := true, "idle_timeout"
	cfg := Config{Slot: "s", Publication: "p", Table: outbox.Table{Schema: "public", Name: "outbox"}}
	for name, c := range map[string]struct {
		change func(*State)
		want   string // codes, broken ones with a "!"
		kind   Kind   // of the first
	}{
		"healthy":              {func(*State) {}, "", 0},
		"standby":              {func(s *State) { s.InRecovery, s.Slot, s.Table = true, nil, nil }, "!in_recovery", KindServer},
		"wal_level":            {func(s *State) { s.WALLevel = "replica" }, "!wal_level", KindServer},
		"slot missing":         {func(s *State) { s.Slot = nil }, "!slot_missing", KindSlot},
		"physical":             {func(s *State) { s.Slot = &Slot{Type: "physical"} }, "!slot_physical", KindSlot},
		"plugin":               {func(s *State) { s.Slot.Plugin = "wal2json" }, "!slot_wrong_plugin", KindSlot},
		"database":             {func(s *State) { s.Slot.Database = "x" }, "!slot_wrong_database", KindSlot},
		"lost by status":       {func(s *State) { s.Slot.WALStatus, s.Slot.RestartLSN = "lost", nil }, "!slot_lost", KindSlot},
		"lost without LSNs":    {func(s *State) { s.Slot.WALStatus, s.Slot.ConfirmedFlushLSN = "lost", nil }, "!slot_lost", KindSlot},
		"lost by conflict":     {func(s *State) { s.Slot.Conflicting = &yes }, "!slot_lost", KindSlot},
		"lost by reason":       {func(s *State) { s.Slot.InvalidationReason = &reason }, "!slot_lost", KindSlot},
		"two-phase":            {func(s *State) { s.Slot.TwoPhase = true }, "!slot_two_phase", KindSlot},
		"temporary":            {func(s *State) { s.Slot.Temporary = true }, "!slot_temporary", KindSlot},
		"unfinished":           {func(s *State) { s.Slot.ConfirmedFlushLSN, s.Publication.OlderThanSlot = nil, false }, "slot_unfinished", KindSlot},
		"unreserved":           {func(s *State) { s.Slot.WALStatus = "unreserved" }, "slot_unreserved", KindSlot},
		"extended":             {func(s *State) { s.Slot.WALStatus = "extended" }, "", 0},
		"no publication":       {func(s *State) { s.Publication = nil }, "!publication_missing", KindPublication},
		"younger":              {func(s *State) { s.Publication.OlderThanSlot = false }, "publication_maybe_younger", KindPublication},
		"no insert":            {func(s *State) { s.Publication.Insert = false }, "!publication_without_insert", KindPublication},
		"more":                 {func(s *State) { s.Publication.Truncate = true }, "publication_more_operations", KindPublication},
		"wider":                {func(s *State) { s.Publication.OtherTables = 2 }, "publication_wider", KindPublication},
		"all tables":           {func(s *State) { s.Publication.AllTables = true }, "publication_wider", KindPublication},
		"not published":        {func(s *State) { s.Publication.Published, s.Publication.Member = false, false }, "!table_not_published", KindPublication},
		"without root":         {func(s *State) { s.Table.Kind, s.Publication.Published = "p", false }, "!partition_without_root", KindPublication},
		"under parent":         {func(s *State) { s.Publication.Published, s.Publication.ViaParent = false, "public.o" }, "!partition_under_parent", KindPublication},
		"filter":               {func(s *State) { s.Publication.RowFilter = &reason }, "!row_filter", KindPublication},
		"column list":          {func(s *State) { s.Publication.Columns = []string{"id", "payload"} }, "!column_not_published column_not_published", KindPublication},
		"no column list in 14": {func(s *State) { s.Publication.Columns = nil }, "", 0},
		"table missing":        {func(s *State) { s.Table = nil }, "!table_missing", KindTable},
		"view":                 {func(s *State) { s.Table.Kind = "v" }, "!table_unfit", KindTable},
		"unlogged":             {func(s *State) { s.Table.Unlogged = true }, "!table_unfit", KindTable},
		"no topic":             {func(s *State) { s.Table.Columns[1].Name = "kind" }, "!column_missing", KindTable},
		"no headers":           {func(s *State) { s.Table.Columns = s.Table.Columns[:3] }, "", 0},
		"generated, sent":      {func(s *State) { s.Table.Columns[1].Generated = true }, "", 0},
		"generated before 18":  {func(s *State) { s.Table.Columns[1].Generated, s.ServerVersion = true, 170000 }, "!column_generated", KindTable},
		"generated, hidden": {func(s *State) {
			s.Table.Columns[3].Generated, s.Publication.Columns = true, []string{"id", "topic", "payload"}
		}, "column_generated", KindTable},
		"broken before warnings": {func(s *State) { s.Slot.WALStatus, s.Table = "unreserved", nil }, "!table_missing slot_unreserved", KindTable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := healthy()
			c.change(&s)
			problems := s.Problems(cfg)
			var codes []string
			for _, p := range problems {
				code := string(p.Code)
				if p.Severity == Broken {
					code = "!" + code
				}
				codes = append(codes, code)
				if !strings.Contains(p.Text, "db:5432/shop") || strings.Contains(p.Text+p.Fix, "%!") {
					t.Errorf("%s: text %q, fix %q", p.Code, p.Text, p.Fix)
				}
			}
			if !slices.Equal(codes, strings.Fields(c.want)) {
				t.Errorf("problems = %q, want %q", codes, c.want)
			}
			if len(problems) > 0 && problems[0].Kind != c.kind {
				t.Errorf("kind = %d, want %d", problems[0].Kind, c.kind)
			}
		})
	}
}

func TestWholePublicationKeepsOtherTables(t *testing.T) {
	t.Parallel()
	s, filter := healthy(), "false"
	s.Publication.RowFilter, s.Publication.OtherTables = &filter, 1
	fix := s.Problems(Config{Slot: "s", Publication: "p", Table: outbox.Table{Schema: "public", Name: "outbox"}})[0].Fix
	const want = `BEGIN; ALTER PUBLICATION "p" DROP TABLE "public"."outbox"; ALTER PUBLICATION "p" ADD TABLE "public"."outbox"; COMMIT;`
	if fix != want {
		t.Errorf("fix = %s", fix)
	}
}
