package deploy

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// The dashboard is JSON whose questions are PromQL, its panels do not overlap, and each says what it shows.
func TestDashboard(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("grafana/relay.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title, UID string
		Panels     []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	if board.Title == "" || board.UID == "" || len(board.Panels) == 0 {
		t.Fatalf("%+v", board)
	}
	taken, ids, titles := map[[2]int]string{}, map[int]bool{}, map[string]bool{}
	variables := strings.NewReplacer("$job", "relay", "$__rate_interval", "1m")
	for _, p := range board.Panels {
		if ids[p.ID] || titles[p.Title] || p.Title == "" {
			t.Errorf("panel %d %q: id or title is there twice", p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, there := taken[[2]int{x, y}]; there || x >= 24 {
					t.Fatalf("panel %q lies over %q or sticks out", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q asks nothing", p.Title)
		}
		for _, target := range p.Targets {
			if _, err := parser.NewParser(parser.Options{}).ParseExpr(variables.Replace(target.Expr)); err != nil {
				t.Errorf("panel %q: %v", p.Title, err)
			}
		}
	}
}
