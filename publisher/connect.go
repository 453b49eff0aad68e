package publisher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/synadia-io/orbit.go/natscontext"
)

// DefaultURL is the NATS server of a relay that names none.
const DefaultURL = nats.DefaultURL

// ConnConfig says how to reach NATS. A field that is empty is taken from the context, if one is named, and else from
// the default. At most one way to sign in may be given: Creds, Nkey, User or Token; it replaces whatever the context has.
type ConnConfig struct {
	URL      string // one server or several with commas between them; default DefaultURL
	Creds    string // path of a .creds file
	Nkey     string // path of a file with an nkey seed
	User     string
	Password string
	Token    string
	Context  string // name of a context of the nats CLI, or an absolute path of its file

	TLSCA   string // path of a PEM file with the authorities to trust, instead of the system's
	TLSCert string // path of the client's certificate; needs TLSKey
	TLSKey  string

	JSDomain    string // JetStream domain; "" is the server's own
	InboxPrefix string // prefix of the subjects for answers; default _INBOX
	Name        string // what the server's operator sees; default relay

	// WriteTimeout is how long the server may take none of what is written before the connection counts as lost: no write
	// blocks for longer. 0: two seconds.
	WriteTimeout time.Duration

	// Dial makes the connections, in place of TCP and of a context's SOCKS proxy. Nil: the network. Simulation gives its
	// own; no setting does.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Only a context sets these.
	tlsFirst   bool
	socksProxy string
	userJWT    string
}

// ConfigError is one setting that cannot work. It never carries a secret.
type ConfigError struct {
	Key    string // name of the setting as on the command line, without dashes
	Value  string // what was given, made safe to print; "" if it is a secret
	Reason string
}

func (e *ConfigError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s: %s", e.Key, e.Reason)
	}
	return fmt.Sprintf("%s %q: %s", e.Key, e.Value, e.Reason)
}

// Validate reports everything that is wrong with the configuration, joined, each a *ConfigError. It reads the files the
// configuration names but connects to nothing.
func (c ConnConfig) Validate() error {
	_, err := c.Resolve()
	return err
}

// Resolve merges the context file into the configuration: what is set stays, what is empty comes from the context and
// then from the defaults. The result names no context. Errors are those of Validate.
func (c ConnConfig) Resolve() (ConnConfig, error) {
	errs := []error{c.checkSignIn()}
	if c.Context != "" {
		settings, err := readContext(c.Context)
		if err != nil {
			errs = append(errs, &ConfigError{Key: "nats-context", Value: c.Context, Reason: err.Error()})
		} else {
			c.merge(settings)
		}
		c.Context = ""
	}
	if c.URL == "" {
		c.URL = DefaultURL
	}
	if c.Name == "" {
		c.Name = "relay"
	}
	errs = append(errs, checkURLs(c.URL), c.checkTLS(),
		checkFile("nats-creds", c.Creds), checkFile("nats-nkey", c.Nkey), checkFile("nats-tls-ca", c.TLSCA),
		checkFile("nats-tls-cert", c.TLSCert), checkFile("nats-tls-key", c.TLSKey),
		checkToken("js-domain", c.JSDomain), checkToken("nats-inbox-prefix", strings.ReplaceAll(c.InboxPrefix, ".", "")))
	return c, errors.Join(errs...)
}

// Servers returns the servers' addresses without user, password or token, for messages and logs.
func (c ConnConfig) Servers() string {
	if c.URL == "" {
		return DefaultURL
	}
	return RedactURL(c.URL)
}

// RedactURL removes everything secret from a NATS URL or a list of them. A part that cannot be read is replaced whole.
func RedactURL(s string) string {
	parts := strings.Split(s, ",")
	for i, part := range parts {
		u, err := parseServer(part)
		if err != nil {
			parts[i] = "(an unreadable URL)"
			continue
		}
		u.User, u.RawQuery, u.Fragment = nil, "", ""
		parts[i] = u.String()
	}
	return strings.Join(parts, ",")
}

func (c *ConnConfig) merge(s natscontext.Settings) {
	signsIn := c.Creds != "" || c.Nkey != "" || c.User != "" || c.Token != ""
	if signsIn && urlSignsIn(s.URL) {
		s.URL = RedactURL(s.URL) // its user would win over what was given
	}
	if c.URL == "" {
		c.URL = s.URL
	}
	switch { // of several ways the nats CLI takes the first of these
	case signsIn, urlSignsIn(c.URL):
	case s.User != "":
		c.User, c.Password = s.User, s.Password
	case s.Creds != "":
		c.Creds = expandHome(os.ExpandEnv(s.Creds))
	case s.NKey != "":
		c.Nkey, c.userJWT = expandHome(s.NKey), s.UserJwt
	default:
		c.Token = s.Token
	}
	if c.TLSCert == "" && c.TLSKey == "" {
		c.TLSCert, c.TLSKey = expandHome(s.Cert), expandHome(s.Key)
	}
	for _, f := range []struct {
		to   *string
		from string
	}{
		{&c.TLSCA, expandHome(s.CA)}, {&c.JSDomain, s.JSDomain}, {&c.InboxPrefix, s.InboxPrefix},
	} {
		if *f.to == "" {
			*f.to = f.from
		}
	}
	c.tlsFirst, c.socksProxy = s.TLSFirst, s.SocksProxy
}

func (c ConnConfig) checkSignIn() error {
	var given []string
	for _, f := range []struct{ key, value string }{
		{"nats-creds", c.Creds}, {"nats-nkey", c.Nkey}, {"nats-user", c.User}, {"nats-token", c.Token},
	} {
		if f.value != "" {
			given = append(given, f.key)
		}
	}
	var errs []error
	if urlSignsIn(c.URL) && len(given) > 0 {
		errs = append(errs, &ConfigError{Key: given[0], Reason: "give one way to sign in: the URL has a user or a token already"})
	}
	if len(given) > 1 {
		errs = append(errs, &ConfigError{Key: given[1], Reason: fmt.Sprintf("give one way to sign in, not %s", strings.Join(given, " and "))})
	}
	if c.Password != "" && c.User == "" {
		errs = append(errs, &ConfigError{Key: "nats-password", Reason: "a password needs nats-user"})
	}
	return errors.Join(errs...)
}

func urlSignsIn(list string) bool {
	for part := range strings.SplitSeq(list, ",") {
		if u, err := parseServer(part); err == nil && u.User != nil {
			return true
		}
	}
	return false
}

func (c ConnConfig) checkTLS() error {
	switch {
	case c.TLSCert != "" && c.TLSKey == "":
		return &ConfigError{Key: "nats-tls-cert", Value: c.TLSCert, Reason: "a client certificate needs nats-tls-key"}
	case c.TLSKey != "" && c.TLSCert == "":
		return &ConfigError{Key: "nats-tls-key", Value: c.TLSKey, Reason: "a key needs nats-tls-cert"}
	}
	return nil
}

func checkURLs(list string) error {
	var errs []error
	for part := range strings.SplitSeq(list, ",") {
		if _, err := parseServer(part); err != nil {
			errs = append(errs, &ConfigError{Key: "nats-url", Reason: err.Error()})
		}
	}
	return errors.Join(errs...)
}

// parseServer reads one server's URL. Its errors quote nothing of the URL but the scheme: any other part could be, or
// hold a piece of, a password with unescaped characters.
func parseServer(s string) (*url.URL, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, errors.New("an empty server URL")
	}
	if !strings.Contains(s, "://") {
		s = "nats://" + s
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, errors.New("cannot be read as a URL (not shown, it may hold a secret): want nats://user:password@host:4222, " +
			"special characters in user and password percent-encoded")
	}
	if !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
		return nil, fmt.Errorf("scheme %q is not one of nats, tls, ws, wss", u.Scheme)
	}
	if u.Hostname() == "" {
		return nil, errors.New("the URL has no host: want nats://host:4222")
	}
	return u, nil
}

func checkFile(key, path string) error {
	if path == "" {
		return nil
	}
	file, err := os.Open(path) //nolint:gosec // the operator names the file
	if err == nil {
		err = file.Close()
	}
	if err == nil {
		return nil
	}
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	return &ConfigError{Key: key, Value: path, Reason: err.Error()}
}

func checkToken(key, s string) error {
	if strings.ContainsAny(s, " \t\r\n.*>") {
		return &ConfigError{Key: key, Value: s, Reason: "blanks, dots and wildcards are not allowed"}
	}
	return nil
}
