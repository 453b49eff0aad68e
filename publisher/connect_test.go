package publisher

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// startServer runs a NATS server of its own for one test.
func startServer(t *testing.T, opts *server.Options) *server.Server {
	t.Helper()
	opts.Host, opts.Port, opts.NoSigs, opts.NoLog = "127.0.0.1", server.RANDOM_PORT, true, true
	if opts.JetStream {
		opts.StoreDir = t.TempDir()
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	t.Cleanup(func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	})
	if !srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server did not start within 10 s")
	}
	return srv
}

func dial(t *testing.T, cfg ConnConfig) *nats.Conn {
	t.Helper()
	nc, err := Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAndWait(t, nc) })
	return nc
}

// closeAndWait closes the connection and waits for the end of its goroutines' work.
func closeAndWait(t *testing.T, nc *nats.Conn) {
	t.Helper()
	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	if nc.IsClosed() {
		return
	}
	nc.Close()
	select {
	case <-closed:
	case <-time.After(5 * time.Second):
		t.Error("the connection did not close within 5 s")
	}
}

func TestC35_NATSSecretsAreNeverPrinted(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t/w?rd#x"
	for _, raw := range []string{
		"nats://relay:s3cr3t%2Fw%3Frd%23x@127.0.0.1:1", // well-formed, nobody listens
		"nats://relay:" + secret + "@127.0.0.1:1",      // cut at the slash by any URL parser
		"nats://relay:s3cr3t%zz@127.0.0.1:1",
		"nats://s3cr3t@127.0.0.1:1", // a token
		"http://relay:s3cr3t@127.0.0.1:1",
		"nats://relay:s3cr3t@127.0.0.1:1,nats://relay:s3cr3t@:1",
		"nats://127.0.0.1:1?password=s3cr3t",
		"nats://[::1:s3cr3t",
	} {
		if got := RedactURL(raw); strings.Contains(got, "s3cr3t") {
			t.Errorf("RedactURL(%q) = %q", raw, got)
		}
		_, err := Dial(t.Context(), ConnConfig{URL: raw})
		if err == nil {
			t.Fatalf("Dial(%q) worked", raw)
		}
		if strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("the error of %q holds the secret: %v", raw, err)
		}
		if strings.Contains(err.Error(), "\n") && !strings.Contains(raw, ",") {
			t.Errorf("the error of %q is not one line: %v", raw, err)
		}
	}
}

func TestValidateReportsEverythingAtOnce(t *testing.T) {
	t.Parallel()
	err := ConnConfig{
		URL: "ftp://host", Creds: "/does/not/exist", Token: "tok-s3cr3t", Password: "pass-s3cr3t", JSDomain: "a.b",
		TLSCert: "/no/cert", Context: "no-such-context",
	}.Validate()
	if err == nil {
		t.Fatal("want an error")
	}
	for _, want := range []string{
		`scheme "ftp"`, "/does/not/exist", "nats-creds and nats-token", "needs nats-user", `"a.b"`, "nats-tls-key",
		"no-such-context",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("the error holds a secret:\n%v", err)
	}
	if _, ok := errors.AsType[*ConfigError](err); !ok {
		t.Errorf("%T is not a *ConfigError", err)
	}
	for _, good := range []ConnConfig{
		{}, {URL: "localhost"}, {URL: "nats://a:1, tls://b:2"}, {URL: "nats://[::1]:4222", User: "u", Password: "p"}, {Token: "t"},
	} {
		if err := good.Validate(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
}

func TestSettingsBeatTheContext(t *testing.T) {
	t.Parallel()
	creds := filepath.Join(t.TempDir(), "a.creds")
	writeFile(t, creds, "x")
	file := filepath.Join(t.TempDir(), "prod.json")
	writeFile(t, file, `{"url":"nats://ctx:1","user":"ctx","password":"p","jetstream_domain":"leaf","inbox_prefix":"_INBOX_ctx","tls_first":true}`)

	got, err := ConnConfig{Context: file}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	if got.URL != "nats://ctx:1" || got.User != "ctx" || got.Password != "p" || got.JSDomain != "leaf" || got.InboxPrefix != "_INBOX_ctx" || !got.tlsFirst {
		t.Errorf("the context was not taken: %+v", got)
	}
	got, err = ConnConfig{Context: file, URL: "nats://own:2", Creds: creds, JSDomain: "hub"}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	if got.URL != "nats://own:2" || got.User != "" || got.Password != "" || got.Creds != creds || got.JSDomain != "hub" {
		t.Errorf("the context won over a setting: %+v", got)
	}
	got, err = ConnConfig{Context: file, URL: "nats://u:p@own:2"}.Resolve()
	if err != nil || got.User != "" || got.Password != "" {
		t.Errorf("the context's user is beside the URL's: %+v, %v", got, err)
	}
	if err := (ConnConfig{URL: "nats://u:p@own:2", Token: "t"}).Validate(); err == nil || !strings.Contains(err.Error(), "nats-token") {
		t.Errorf("two ways to sign in: %v", err)
	}
	writeFile(t, file, `{"url":"nats://ctx:p@ctx:1"}`)
	if got, err := (ConnConfig{Context: file, User: "own"}).Resolve(); err != nil || got.URL != "nats://ctx:1" {
		t.Errorf("the user in the context's URL was kept: %+v, %v", got, err)
	}
	writeFile(t, file, `{"user":"ctx","creds":"`+creds+`"}`)
	got, err = ConnConfig{Context: file}.Resolve()
	if err != nil || got.URL != DefaultURL || got.User != "ctx" || got.Creds != "" || got.Validate() != nil {
		t.Errorf("a context with two ways to sign in: %+v, %v", got, err)
	}
	writeFile(t, file, `{"url":`)
	if err := (ConnConfig{Context: file}).Validate(); err == nil || !strings.Contains(err.Error(), "not a context file") {
		t.Errorf("a broken context file: %v", err)
	}
}

func TestDialSignsIn(t *testing.T) {
	t.Parallel()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, _ := pair.Seed()
	public, _ := pair.PublicKey()
	seedFile := filepath.Join(t.TempDir(), "user.nk")
	writeFile(t, seedFile, string(seed))

	byUser := startServer(t, &server.Options{Username: "relay", Password: "p@s:s/w?r#d%25&'x"})
	byToken := startServer(t, &server.Options{Authorization: "tok"})
	byNkey := startServer(t, &server.Options{Nkeys: []*server.NkeyUser{{Nkey: public}}})
	for _, cfg := range []ConnConfig{
		{URL: byUser.ClientURL(), User: "relay", Password: "p@s:s/w?r#d%25&'x"},
		{URL: strings.Replace(byUser.ClientURL(), "nats://", "nats://relay:p%40s%3As%2Fw%3Fr%23d%2525%26'x@", 1)},
		{URL: byToken.ClientURL(), Token: "tok"},
		{URL: byNkey.ClientURL(), Nkey: seedFile},
	} {
		dial(t, cfg)
	}
	for _, cfg := range []ConnConfig{
		{URL: byUser.ClientURL()},
		{URL: byUser.ClientURL(), User: "relay", Password: "wrong-s3cr3t"},
		{URL: byToken.ClientURL(), Token: "wrong-s3cr3t"},
	} {
		_, err := Dial(t.Context(), cfg)
		refused, ok := errors.AsType[*ConnectError](err)
		if !ok || !errors.Is(err, nats.ErrAuthorization) || refused.Advice != signInAdvice || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("signing in wrongly: %v (%T)", err, err)
		}
	}
}

func TestDialErrors(t *testing.T) {
	t.Parallel()
	_, err := Dial(t.Context(), ConnConfig{URL: "nats://127.0.0.1:1"})
	if e, ok := errors.AsType[*ConnectError](err); !ok || !strings.Contains(err.Error(), "refused") || !strings.Contains(e.Advice, "start the server") {
		t.Errorf("nobody listens: %v", err)
	}

	silent := silentListener(t)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, errors.New("the test's own limit"))
	defer cancel()
	start := time.Now()
	_, err = Dial(ctx, ConnConfig{URL: silent})
	if err == nil || !strings.Contains(err.Error(), "the test's own limit") || time.Since(start) > time.Second {
		t.Errorf("a dead dial was bounded by ctx after %v with %v", time.Since(start), err)
	}
	_, err = Dial(t.Context(), ConnConfig{URL: silent})
	if e, ok := errors.AsType[*ConnectError](err); !ok || !strings.Contains(e.Advice, "is it alive") {
		t.Errorf("a silent server: %v", err)
	}
}

func TestDialTLS(t *testing.T) {
	t.Parallel()
	cert, caFile := selfSigned(t)
	secure := startServer(t, &server.Options{TLS: true, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, TLSTimeout: 2})
	plain := startServer(t, &server.Options{})
	address := strings.TrimPrefix(strings.TrimPrefix(secure.ClientURL(), "nats://"), "tls://")

	dial(t, ConnConfig{URL: "tls://" + address, TLSCA: caFile})
	_, err := Dial(t.Context(), ConnConfig{URL: "tls://" + address})
	if e, ok := errors.AsType[*ConnectError](err); !ok || e.Advice != tlsAdvice {
		t.Errorf("an unknown authority: %v", err)
	}
	_, err = Dial(t.Context(), ConnConfig{URL: strings.Replace(plain.ClientURL(), "nats://", "tls://", 1)})
	if !errors.Is(err, nats.ErrSecureConnWanted) {
		t.Errorf("TLS to a plain server: %v", err)
	}
}

func TestDialOutlivesItsContext(t *testing.T) {
	t.Parallel()
	srv := startServer(t, &server.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	nc, err := Dial(ctx, ConnConfig{URL: srv.ClientURL(), InboxPrefix: "_INBOX_relay"})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAndWait(t, nc)
	cancel()
	if err := nc.Flush(); err != nil {
		t.Errorf("the connection died with the dial's context: %v", err)
	}
	if inbox := nc.NewRespInbox(); !strings.HasPrefix(inbox, "_INBOX_relay.") {
		t.Errorf("inbox %s", inbox)
	}
	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	srv.Shutdown()
	select {
	case <-closed: // it did not try to come back
	case <-time.After(5 * time.Second):
		t.Errorf("status %v after the server went away", nc.Status())
	}
}

func silentListener(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	listener, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return "nats://" + listener.Addr().String()
}

func selfSigned(t *testing.T) (cert tls.Certificate, caFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "relay test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	writeFile(t, caFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, caFile
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
