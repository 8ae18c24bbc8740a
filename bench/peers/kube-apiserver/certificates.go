package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Names of files in the child's folder.
const (
	certificateFile = "serving.crt"
	keyFile         = "serving.key"
)

// certify writes a certificate for 127.0.0.1 and its key into the folder, and gives the authority that
// signed it, as PEM. The authority is a certificate of its own because strict clients take no server
// certificate as its own authority; its key is forgotten.
func certify(dir string) (string, error) {
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	authority := template(1, "bench authority")
	authority.IsCA = true
	authority.KeyUsage = x509.KeyUsageCertSign
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, &authorityKey.PublicKey, authorityKey)
	if err != nil {
		return "", err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	leaf := template(2, "127.0.0.1")
	leaf.KeyUsage = x509.KeyUsageDigitalSignature
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, authority, &key.PublicKey, authorityKey)
	if err != nil {
		return "", err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, certificateFile), block("CERTIFICATE", leafDER), 0o600); err != nil {
		return "", err
	}
	err = os.WriteFile(filepath.Join(dir, keyFile), block("EC PRIVATE KEY", keyDER), 0o600)
	return string(block("CERTIFICATE", authorityDER)), err
}

// template is what both certificates have in common; no measurement lasts a day.
func template(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber:          big.NewInt(serial),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		BasicConstraintsValid: true,
	}
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
