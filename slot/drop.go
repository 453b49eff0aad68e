package slot

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// DropOptions says what else Drop takes away.
type DropOptions struct {
	Publication bool // also the publication
}

// Drop drops the slot, and the publication if asked to, in this order. It refuses with a *DropError a slot that is held,
// that is not a relay's (physical, another plugin, another database) or that does not exist; a missing slot is no error
// if there is a publication left that it is asked to drop. Events that the slot has not delivered stay in the table only.
func Drop(ctx context.Context, conn *pgx.Conn, cfg Config, o DropOptions) error {
	state, err := Inspect(ctx, conn, cfg)
	if err != nil {
		return err
	}
	dropPublication := o.Publication && state.Publication != nil
	if state.Slot == nil && !dropPublication {
		return &DropError{Reason: ErrSlotMissing, Fix: "relay slot list", Text: fmt.Sprintf("slot %q does not exist on %s", cfg.Slot, state.Where)}
	}
	if state.Slot != nil {
		if err := refuseDrop(state); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, `SELECT pg_drop_replication_slot($1::name)`, pgx.QueryExecModeExec, cfg.Slot); err != nil {
			return dropFailed(ctx, conn, cfg, err)
		}
	}
	if dropPublication {
		name := pgx.Identifier{cfg.Publication}.Sanitize()
		if _, err := conn.Exec(ctx, "DROP PUBLICATION "+name); err != nil {
			return fmt.Errorf("drop publication %s (the slot is dropped): %w", name, err)
		}
	}
	return nil
}

func refuseDrop(state State) error {
	s, name := state.Slot, fmt.Sprintf("slot %q on %s", state.Slot.Name, state.Where)
	refuse := func(reason error, fix, text string, args ...any) error {
		return &DropError{Reason: reason, Fix: fix, Text: name + " " + fmt.Sprintf(text, args...)}
	}
	const byHand = "SELECT pg_drop_replication_slot('%s');  -- only if its owner agrees"
	switch {
	case s.Type != "logical":
		return refuse(ErrSlotForeign, fmt.Sprintf(byHand, s.Name), "is a physical slot: it belongs to a standby or a backup")
	case s.Plugin != "pgoutput":
		return refuse(ErrSlotForeign, fmt.Sprintf(byHand, s.Name), "is of plugin %s, not pgoutput: it belongs to another program", s.Plugin)
	case s.Database != state.Database:
		return refuse(ErrSlotForeign, "connect to that database to drop it", "belongs to database %q", s.Database)
	case s.Active || s.ActivePID != nil:
		return refuse(ErrSlotActive, "stop the relay that holds it, then drop it", "is in use%s", s.holderText())
	}
	return nil
}

// dropFailed tells a slot that was taken or dropped in the last moment from a real failure.
func dropFailed(ctx context.Context, conn *pgx.Conn, cfg Config, err error) error {
	if code := sqlState(err); code == codeObjectInUse || code == codeUndefinedObject {
		state, inspectErr := Inspect(ctx, conn, cfg)
		switch {
		case inspectErr != nil:
		case state.Slot == nil:
			return &DropError{Reason: ErrSlotMissing, Fix: "relay slot list", Text: fmt.Sprintf("slot %q does not exist on %s", cfg.Slot, state.Where)}
		default:
			if refused := refuseDrop(state); refused != nil {
				return refused
			}
		}
	}
	return fmt.Errorf("drop slot %q: %w", cfg.Slot, err)
}

// holderText names the holder as far as it is known, with a blank before it.
func (s *Slot) holderText() string {
	if s.ActivePID == nil {
		return ""
	}
	text := fmt.Sprintf(" by pid %d", *s.ActivePID)
	if h := s.Holder; h != nil {
		if h.ApplicationName != "" {
			text += fmt.Sprintf(" (%s)", h.ApplicationName)
		}
		if h.Address != "" {
			text += " from " + h.Address
		}
	}
	return text
}
