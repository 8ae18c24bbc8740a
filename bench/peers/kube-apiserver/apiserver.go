package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/kubernetes/pkg/kubeapiserver/options"
)

// needed are the API groups of pods and of what kube-apiserver waits for before it says that it is ready.
var needed = []string{
	"api/v1",
	"admissionregistration.k8s.io/v1",
	"apiextensions.k8s.io/v1",
	"apiregistration.k8s.io/v1",
	"discovery.k8s.io/v1",
	"networking.k8s.io/v1",
}

// apiserver is a kube-apiserver that can be started more than once, always at the same address.
type apiserver struct {
	*process
	dir     string
	address string
	token   string
	ca      string
	flags   []string
	client  *http.Client
	// A list of one pod, with the path of its namespace.
	probe string
}

// newAPIServer prepares what kube-apiserver needs to start; the key is that of a pod which is there.
func newAPIServer(dir, etcd, key string) (*apiserver, error) {
	ca, err := certify(dir)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	token := rand.Text()
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",bench,bench,system:masters\n"), 0o600); err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(ca))
	return &apiserver{
		dir:     dir,
		address: fmt.Sprintf("127.0.0.1:%d", port),
		token:   token,
		ca:      ca,
		flags:   lean(dir, etcd, tokens, port),
		// Compressing its answers would be counted as the server's work.
		client: &http.Client{Transport: &http.Transport{
			TLSClientConfig:    &tls.Config{RootCAs: roots},
			DisableCompression: true,
		}},
		probe: probe(key),
	}, nil
}

// lean are the flags of a kube-apiserver that does as little besides serving as it can be told to: no
// admission, no fairness or limits, no reconciling, no compaction, no API that it can start without.
func lean(dir, etcd, tokens string, port int) []string {
	key := filepath.Join(dir, keyFile)
	return []string{
		"--etcd-servers=" + etcd,
		"--etcd-compaction-interval=0",
		"--etcd-count-metric-poll-period=0",
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--external-hostname=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + filepath.Join(dir, certificateFile),
		"--tls-private-key-file=" + key,
		"--cert-dir=" + dir,
		"--token-auth-file=" + tokens,
		"--anonymous-auth=false",
		"--authorization-mode=AlwaysAllow",
		"--service-account-issuer=https://127.0.0.1",
		"--service-account-key-file=" + key,
		"--service-account-signing-key-file=" + key,
		"--service-cluster-ip-range=10.0.0.0/24",
		"--endpoint-reconciler-type=none",
		"--disable-admission-plugins=" + strings.Join(options.AllOrderedPlugins, ","),
		"--enable-priority-and-fairness=false",
		"--max-requests-inflight=0",
		"--max-mutating-requests-inflight=0",
		"--runtime-config=api/all=false," + strings.Join(needed, "=true,") + "=true",
		"--feature-gates=APIServerIdentity=false,UnknownVersionInteroperabilityProxy=false",
		"--watch-cache=true",
		"--profiling=false",
		"--v=0",
	}
}

// probe is the path of a list that only a filled watch cache answers: without a selector a cache that is
// not filled passes it on to etcd, and without a name the answer would be all pods, whatever its limit.
func probe(key string) string {
	parts := strings.Split(key, "/")
	namespace, name := parts[len(parts)-2], parts[len(parts)-1]
	query := url.Values{
		"resourceVersion": {"0"}, "limit": {"1"}, "fieldSelector": {"metadata.name=" + name},
	}
	return "/api/v1/namespaces/" + namespace + "/pods?" + query.Encode()
}

// start starts kube-apiserver and gives the milliseconds until it says that it is ready and lists pods from
// its watch cache.
func (a *apiserver) start(ctx context.Context) (int64, error) {
	begin := time.Now()
	p, err := start(a.dir, "kube-apiserver", a.flags)
	if err != nil {
		return 0, err
	}
	a.process = p
	err = p.await(ctx, func(ctx context.Context) error {
		if err := a.get(ctx, "/readyz", nil); err != nil {
			return err
		}
		return a.get(ctx, a.probe, nil)
	})
	return time.Since(begin).Milliseconds(), err
}

// watches counts the watches of pods that are open.
func (a *apiserver) watches(ctx context.Context) (int, error) {
	count := 0
	err := a.get(ctx, "/metrics", func(body io.Reader) error {
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, lineBytes)
		for lines.Scan() {
			n, err := watchesOf(lines.Text())
			if err != nil {
				return err
			}
			count += n
		}
		return lines.Err()
	})
	if err != nil {
		return 0, a.failed(err)
	}
	return count, nil
}

// watchesOf is what one line of the metrics adds.
func watchesOf(line string) (int, error) {
	labels, found := strings.CutPrefix(line, "apiserver_longrunning_requests{")
	if !found || !strings.Contains(labels, `resource="pods"`) || !strings.Contains(labels, `verb="WATCH"`) {
		return 0, nil
	}
	value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
	return int(value), err
}

// get asks and lets the reader have the body of a good answer.
func (a *apiserver) get(ctx context.Context, path string, read func(io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+a.address+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	answer, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body) // Half an explanation is better than none.
		return errors.New(answer.Status + ": " + strings.TrimSpace(string(text)))
	}
	if read == nil {
		read = func(body io.Reader) error { _, err := io.Copy(io.Discard, body); return err }
	}
	return read(answer.Body)
}
