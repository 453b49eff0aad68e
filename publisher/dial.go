package publisher

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"golang.org/x/net/proxy"
)

// What a connection is given before it counts as lost.
const (
	dialTimeout  = 2 * time.Second // per server: TCP, TLS, sign-in
	writeTimeout = 2 * time.Second
	pingInterval = 3 * time.Second
	maxPings     = 2
)

// ConnectError is a connection to NATS that could not be made. Error says why, Advice what to do; neither holds a
// secret. It wraps the cause.
type ConnectError struct {
	Servers string
	Advice  string
	Err     error
}

func (e *ConnectError) Error() string {
	return fmt.Sprintf("connect to NATS at %s: %v", e.Servers, e.Err)
}

func (e *ConnectError) Unwrap() error { return e.Err }

// Dial makes one connection that never reconnects by itself: a connection that came back would send what its buffer
// still held, out of order. ctx bounds the dialling only. The error is a *ConfigError (joined) or a *ConnectError.
// Options given in extra come last and win.
func Dial(ctx context.Context, cfg ConnConfig, extra ...nats.Option) (*nats.Conn, error) {
	cfg, err := cfg.Resolve()
	if err != nil {
		return nil, err
	}
	dialer, err := newDialer(ctx, cfg.socksProxy)
	if err != nil {
		return nil, &ConnectError{Servers: cfg.Servers(), Err: err}
	}
	if cfg.Dial != nil {
		dialer.dial = cfg.Dial
	}
	opts, err := cfg.options()
	if err != nil {
		return nil, &ConnectError{Servers: cfg.Servers(), Err: err, Advice: signInAdvice}
	}
	opts = append(opts, nats.SetCustomDialer(dialer), nats.SkipHostLookup())
	nc, err := nats.Connect(cfg.URL, append(opts, extra...)...)
	dialer.release()
	if cause := context.Cause(ctx); cause != nil {
		if nc != nil {
			nc.Close()
		}
		return nil, &ConnectError{Servers: cfg.Servers(), Err: cause}
	}
	if err != nil {
		return nil, cfg.explain(err, dialer.lastErr())
	}
	return nc, nil
}

func (c ConnConfig) options() ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name(c.Name), nats.NoReconnect(), nats.RetryOnFailedConnect(false), nats.Timeout(dialTimeout),
		nats.FlusherTimeout(cmp.Or(c.WriteTimeout, writeTimeout)), nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(maxPings),
		nats.PermissionErrOnSubscribe(true),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // the default one writes to stderr
	}
	switch {
	case c.userJWT != "":
		seed, err := os.ReadFile(c.Nkey)
		if err != nil {
			return nil, err
		}
		defer clear(seed)
		pair, err := nkeys.ParseDecoratedNKey(seed)
		if err != nil {
			return nil, fmt.Errorf("read the seed in %s: %w", c.Nkey, err)
		}
		opts = append(opts, nats.UserJWT(func() (string, error) { return c.userJWT, nil }, pair.Sign))
	case c.Nkey != "":
		opt, err := nats.NkeyOptionFromSeed(c.Nkey)
		if err != nil {
			return nil, err
		}
		opts = append(opts, opt)
	case c.Creds != "":
		opts = append(opts, nats.UserCredentials(c.Creds))
	case c.User != "":
		opts = append(opts, nats.UserInfo(c.User, c.Password))
	case c.Token != "":
		opts = append(opts, nats.Token(c.Token))
	}
	if c.TLSCert != "" {
		opts = append(opts, nats.ClientCert(c.TLSCert, c.TLSKey))
	}
	if c.TLSCA != "" {
		opts = append(opts, nats.RootCAs(c.TLSCA))
	}
	if c.tlsFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	if c.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	return opts, nil
}

const (
	signInAdvice = "check --nats-creds, --nats-nkey, --nats-user and --nats-password, or --nats-token"
	tlsAdvice    = "check --nats-tls-ca (the authority that signed the server's certificate), --nats-tls-cert and --nats-tls-key"
)

// explain picks the cause that a person can act on. nats.go replaces a refused connection by "no servers available".
func (c ConnConfig) explain(err, dialErr error) error {
	e := &ConnectError{Servers: c.Servers(), Err: err}
	if system, ok := errors.AsType[*os.SyscallError](dialErr); ok {
		dialErr = system.Err // without the address, which stands before it already
	}
	var (
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
		record    tls.RecordHeaderError
		alert     tls.AlertError
		dns       *net.DNSError
	)
	switch {
	case errors.Is(err, nats.ErrNoServers) && dialErr != nil:
		e.Err, e.Advice = dialErr, "start the server, or check --nats-url"
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired), errors.Is(err, nats.ErrNkeysNotSupported):
		e.Advice = signInAdvice
	case errors.Is(err, nats.ErrSecureConnWanted):
		e.Advice = "the server has no TLS: use a nats:// URL and no --nats-tls-* flags"
	case errors.As(err, &authority), errors.As(err, &hostname), errors.As(err, &invalid), errors.As(err, &record),
		errors.As(err, &alert), errors.Is(err, nats.ErrTLS), errors.Is(err, nats.ErrSecureConnRequired):
		e.Advice = tlsAdvice
	case errors.As(err, &dns):
		e.Advice = "check the host in --nats-url"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		e.Advice = "is this the port of a NATS server (4222 by default), and is it alive? check --nats-url"
	default:
		e.Advice = "check --nats-url"
	}
	return e
}

// dialer makes TCP connections that live under the dial's context until release is called.
type dialer struct {
	ctx  context.Context //nolint:containedctx // nats.CustomDialer takes none
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu    sync.Mutex
	err   error         // of the last attempt
	stops []func() bool // each takes one connection out of the context's reach
}

func newDialer(ctx context.Context, socksProxy string) (*dialer, error) {
	direct := &net.Dialer{Timeout: dialTimeout}
	d := &dialer{ctx: ctx, dial: direct.DialContext}
	if socksProxy == "" {
		return d, nil
	}
	u, err := url.Parse(socksProxy)
	if err != nil {
		return nil, errors.New("socks_proxy of the context is not a URL")
	}
	through, err := proxy.FromURL(u, direct)
	if err != nil {
		return nil, fmt.Errorf("socks_proxy of the context: %w", err)
	}
	d.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		if cd, ok := through.(proxy.ContextDialer); ok {
			return cd.DialContext(ctx, network, addr)
		}
		return through.Dial(network, addr)
	}
	return d, nil
}

// Dial makes nats.go use the context.
func (d *dialer) Dial(network, addr string) (net.Conn, error) {
	conn, err := d.dial(d.ctx, network, addr)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
	if err == nil {
		d.stops = append(d.stops, context.AfterFunc(d.ctx, func() { _ = conn.Close() }))
	}
	return conn, err
}

func (d *dialer) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, stop := range d.stops {
		stop()
	}
}

func (d *dialer) lastErr() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}
