package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"
)

// nodeConfig is one node of a cluster.
type nodeConfig struct {
	NATSConfig
	Name        string
	ClusterPort int
	Routes      []string
}

// configure adds what makes a server a node. Clients are told of no other node: they would go round the proxies.
func (cfg nodeConfig) configure() (func(*server.Options), error) {
	var routes []*url.URL
	for _, text := range cfg.Routes {
		u, err := url.Parse(text)
		if err != nil {
			return nil, err
		}
		routes = append(routes, u)
	}
	return func(opts *server.Options) {
		opts.ServerName, opts.Routes = cfg.Name, routes
		opts.Cluster = server.ClusterOpts{Name: "sandbox", Host: loopback, Port: cfg.ClusterPort, NoAdvertise: true}
	}, nil
}

func serveNode(config string) error {
	var cfg nodeConfig
	if err := json.Unmarshal([]byte(config), &cfg); err != nil {
		return fmt.Errorf("read %s: %w", configEnv, err)
	}
	var err error
	if cfg.Configure, err = cfg.configure(); err != nil {
		return fmt.Errorf("read %s: %w", configEnv, err)
	}
	return cfg.serve()
}

// NATSCluster is three NATS servers, each in a process of its own, with JetStream across them.
type NATSCluster struct {
	nodes []*NATSNode
}

// NATSNode is one server of a cluster. It is safe for concurrent use.
type NATSNode struct {
	cfg    nodeConfig
	folder *folder

	mu   sync.Mutex
	proc *Process // the last one started
}

const clusterNodes = 3

// StartNATSCluster runs this executable again three times, as the nodes of a cluster; see [Main]. It waits until each
// accepts clients; that JetStream has found a leader is for the caller to wait for. ctx bounds the start, not its life.
func StartNATSCluster(ctx context.Context, cfg NATSConfig) (*NATSCluster, error) {
	if os.Getenv(childEnv) != "" {
		return nil, errors.New("start NATS cluster: this is a child already: call sandbox.Main first in main or TestMain")
	}
	c := &NATSCluster{}
	var routes []string
	for i := range clusterNodes {
		n := &NATSNode{cfg: nodeConfig{NATSConfig: cfg, Name: fmt.Sprintf("node%d", i+1)}}
		n.cfg.Port, n.cfg.StoreDir = 0, ""
		var err error
		if n.folder, err = n.cfg.prepare(ctx); err == nil {
			c.nodes = append(c.nodes, n)
			n.cfg.ClusterPort, err = freePort(ctx)
		}
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		routes = append(routes, fmt.Sprintf("nats://%s:%d", loopback, n.cfg.ClusterPort))
	}
	for _, n := range c.nodes {
		n.cfg.Routes = routes
		if err := n.cfg.withPort(ctx, func() error { return n.Start(ctx) }); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// Nodes are the cluster's servers.
func (c *NATSCluster) Nodes() []*NATSNode { return c.nodes }

// URL names all nodes, as clients take it.
func (c *NATSCluster) URL() string {
	var all []string
	for _, n := range c.nodes {
		all = append(all, n.cfg.url())
	}
	return strings.Join(all, ",")
}

// Close kills all nodes and removes their stores.
func (c *NATSCluster) Close() error {
	var errs []error
	for _, n := range c.nodes {
		if p := n.Process(); p != nil {
			errs = append(errs, p.Close())
		}
		if n.folder != nil {
			errs = append(errs, n.folder.remove())
		}
	}
	return errors.Join(errs...)
}

// Name is the server's name in the cluster.
func (n *NATSNode) Name() string { return n.cfg.Name }

// Addr is host:port, for a proxy. It stays the same across Kill and Start.
func (n *NATSNode) Addr() string { return fmt.Sprintf("%s:%d", loopback, n.cfg.Port) }

// Process is the server's process that was started last, nil before the first.
func (n *NATSNode) Process() *Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proc
}

// Start starts the node again, on the same ports and store, and waits until it accepts clients. One that runs is left as it
// is.
func (n *NATSNode) Start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil && n.proc.Running() {
		return nil
	}
	config, err := json.Marshal(n.cfg)
	if err != nil {
		return fmt.Errorf("start NATS node: %w", err)
	}
	ready := &lineSignal{line: []byte(readyLine), seen: make(chan struct{})}
	proc, err := StartProcess(ctx, ProcessConfig{Env: []string{childEnv + "=" + nodeChild, configEnv + "=" + string(config)}, Stdout: ready, HoldStdin: true})
	if err != nil {
		return fmt.Errorf("start NATS node: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, natsReadyLimit, errLimit)
	defer cancel()
	select {
	case <-ready.seen:
		n.proc = proc
		return nil
	case <-proc.Done():
		err = errEnded
	case <-ctx.Done():
		err = fmt.Errorf("%w: is sandbox.Main called first in main or TestMain?", context.Cause(ctx))
	}
	return fmt.Errorf("start NATS node on port %d: %w: %s", n.cfg.Port, errors.Join(err, proc.Close()), proc.Tail())
}

// Stop shuts the node down in good order and waits for its end. The store stays.
func (n *NATSNode) Stop(ctx context.Context) error {
	proc := n.Process()
	if err := proc.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop NATS node: %w", err)
	}
	if _, err := proc.Wait(ctx); err != nil {
		return fmt.Errorf("stop NATS node: %w", err)
	}
	return nil
}
