// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

var testCluster = Cluster{
	Server: "https://127.0.0.1", NodeName: "node-1",
	NodeIP: net.IPv4(10, 99, 0, 1), ServiceIP: net.IPv4(10, 96, 0, 1),
}

func written(t *testing.T) (string, time.Time) {
	t.Helper()
	dir, now := t.TempDir(), time.Now()
	require.NoError(t, Write(dir, testCluster, now))
	return dir, now
}

func TestEveryCertificateIsSignedByTheAuthorityAndFitsItsKey(t *testing.T) {
	t.Parallel()
	dir, now := written(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(read(t, dir, AuthorityFile))
	for file, want := range identities(testCluster) {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, file+".crt"), filepath.Join(dir, file+".key"))
		require.NoError(t, err, file)
		_, err = pair.Leaf.Verify(x509.VerifyOptions{
			Roots: roots, CurrentTime: now.Add(24 * time.Hour), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
		require.NoError(t, err, file)
		require.Equal(t, want.Name, pair.Leaf.Subject.CommonName)
		require.ElementsMatch(t, want.Groups, pair.Leaf.Subject.Organization)
	}
}

func TestServersAreValidForTheNamesTheyAreCalledBy(t *testing.T) {
	t.Parallel()
	dir, _ := written(t)
	for file, names := range map[string][]string{
		APIServer:   {"127.0.0.1", "10.96.0.1", "10.99.0.1", "localhost", "kubernetes.default.svc"},
		Kubelet:     {"10.99.0.1", "node-1", "127.0.0.1"},
		LocalServer: {"127.0.0.1"},
	} {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, file+".crt"), filepath.Join(dir, file+".key"))
		require.NoError(t, err)
		require.Contains(t, pair.Leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		for _, name := range names {
			require.NoError(t, pair.Leaf.VerifyHostname(name), file)
		}
		require.Error(t, pair.Leaf.VerifyHostname("192.0.2.1"))
	}
}

func TestClientsAreNoServers(t *testing.T) {
	t.Parallel()
	dir, _ := written(t)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, Admin+".crt"), filepath.Join(dir, Admin+".key"))
	require.NoError(t, err)
	require.NotContains(t, pair.Leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
}

func TestServiceAccountKeysArePairs(t *testing.T) {
	t.Parallel()
	dir, _ := written(t)
	private, err := x509.ParseECPrivateKey(block(t, read(t, dir, SigningFile), "EC PRIVATE KEY"))
	require.NoError(t, err)
	public, err := x509.ParsePKIXPublicKey(block(t, read(t, dir, VerifyingFile), "PUBLIC KEY"))
	require.NoError(t, err)
	require.True(t, private.PublicKey.Equal(public.(*ecdsa.PublicKey)))
}

func TestKubeconfigHoldsEverything(t *testing.T) {
	t.Parallel()
	dir, _ := written(t)
	kubeconfig := string(read(t, dir, Admin+".kubeconfig"))
	require.Contains(t, kubeconfig, "server: https://127.0.0.1\n")
	for key, file := range map[string]string{
		"certificate-authority-data": AuthorityFile,
		"client-certificate-data":    Admin + ".crt",
		"client-key-data":            Admin + ".key",
	} {
		found := regexp.MustCompile(key + `: (\S+)`).FindStringSubmatch(kubeconfig)
		require.Len(t, found, 2, key)
		decoded, err := base64.StdEncoding.DecodeString(found[1])
		require.NoError(t, err)
		require.Equal(t, read(t, dir, file), decoded, key)
	}
}

func TestATokenTakesTheCertificatesPlace(t *testing.T) {
	t.Parallel()
	var config struct {
		Clusters []struct{ Cluster map[string]string }
		Users    []struct{ User map[string]string }
	}
	require.NoError(t, yaml.Unmarshal(TokenKubeconfig("https://127.0.0.1", []byte("ca"), "header.payload.signature"), &config))
	require.Equal(t, map[string]string{"server": "https://127.0.0.1", "certificate-authority-data": "Y2E="}, config.Clusters[0].Cluster)
	require.Equal(t, map[string]string{"token": "header.payload.signature"}, config.Users[0].User)
}

func TestKeysAreForTheOwnerOnly(t *testing.T) {
	t.Parallel()
	dir, _ := written(t)
	info, err := os.Stat(filepath.Join(dir, Admin+".key"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return content
}

func block(t *testing.T, content []byte, kind string) []byte {
	t.Helper()
	b, _ := pem.Decode(content)
	require.NotNil(t, b)
	require.Equal(t, kind, b.Type)
	return b.Bytes
}
