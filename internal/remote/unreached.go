package remote

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
)

// unreachedError is the error of a server that was never there: another try does not help.
type unreachedError struct{ error }

func (e *unreachedError) Unwrap() error { return e.error }

// unreached wraps errors of a first request that say that nobody is there. Later, a server may be gone for a moment.
func unreached(err error) error {
	var name *net.DNSError
	if errors.As(err, &name) && name.IsNotFound || errors.Is(err, syscall.ECONNREFUSED) {
		return &unreachedError{err}
	}
	return err
}

// advised says what to do about errors of a connection.
func advised(err error) error {
	var authority x509.UnknownAuthorityError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return errors.New("this server speaks http, not https")
	case errors.As(err, &authority):
		return fmt.Errorf("%w; the variable SSL_CERT_FILE names a file with certificates to trust", err)
	}
	return err
}
