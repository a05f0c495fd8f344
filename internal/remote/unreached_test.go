package remote

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A server that is not there is asked once; what speaks no https, or has an unknown certificate, gets advice.
func TestUnreached(t *testing.T) {
	answer := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	plain, secure := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	defer plain.Close()
	defer secure.Close()
	closed := httptest.NewServer(answer)
	closed.Close()
	missing := &http.Client{Transport: &http.Transport{DialContext: nil, Dial: func(string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "nowhere", IsNotFound: true}}
	}}}
	for _, c := range []struct {
		url  string
		http *http.Client
		want string
	}{
		{"https" + strings.TrimPrefix(plain.URL, "http"), nil, "this server speaks http, not https"},
		{secure.URL, nil, "SSL_CERT_FILE"},
		{"https" + strings.TrimPrefix(closed.URL, "http"), nil, "refused"},
		{"https://nowhere", missing, "no such host"},
	} {
		client := &Client{HTTP: c.http, Pause: time.Hour, Tries: 6}
		_, err := client.Stat(t.Context(), c.url+"/m.onnx")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.url, err)
		}
	}
}
