package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	// What 1,000,000 pods of 6 KB need, and a little more; the most that etcd advises.
	quotaBytes = 8 << 30
	// The most operations that etcd takes in a transaction.
	transactionOperations = 128
	// Below etcd's limit of 1.5 MiB for a request.
	transactionBytes = 1 << 20
)

type etcd struct {
	*process
	address string
	client  *clientv3.Client
}

// startEtcd starts an etcd that keeps nothing safe: it does not outlive the measurement.
func startEtcd(ctx context.Context, dir string) (*etcd, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	peerPort, err := freePort()
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("http://127.0.0.1:%d", port)
	peers := fmt.Sprintf("http://127.0.0.1:%d", peerPort)
	p, err := start(dir, "etcd", []string{
		"--name=bench",
		"--data-dir=" + filepath.Join(dir, "etcd"),
		"--listen-client-urls=" + address,
		"--advertise-client-urls=" + address,
		"--listen-peer-urls=" + peers,
		"--initial-advertise-peer-urls=" + peers,
		"--initial-cluster=bench=" + peers,
		"--unsafe-no-fsync",
		fmt.Sprintf("--quota-backend-bytes=%d", quotaBytes),
		"--log-level=error",
	})
	if err != nil {
		return nil, err
	}
	e := &etcd{process: p, address: address}
	if err := e.connect(ctx); err != nil {
		p.stop()
		return nil, err
	}
	return e, nil
}

// connect waits for etcd before it makes a client: a client that finds nobody rests for a second.
func (e *etcd) connect(ctx context.Context) error {
	err := e.await(ctx, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.address+"/readyz", nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("it answers %s", answer.Status)
		}
		return nil
	})
	if err != nil {
		return err
	}
	e.client, err = clientv3.New(clientv3.Config{Endpoints: []string{e.address}, Logger: zap.NewNop()})
	return err
}

// touch is a put of what a key has already: its revision changes and nothing else.
func touch(key string) clientv3.Op { return clientv3.OpPut(key, "", clientv3.WithIgnoreValue()) }

// update touches the keys in turn, `rate` a second, and gives the time of each in microseconds since 1970.
func (e *etcd) update(ctx context.Context, keys []string, rate, count int) ([]int64, error) {
	if rate < 1 || count < 0 {
		return nil, fmt.Errorf("%d updates at %d a second are none", count, rate)
	}
	times := make([]int64, 0, count)
	begin, step := time.Now(), time.Second/time.Duration(rate)
	for i := range count {
		if err := sleepUntil(ctx, begin.Add(time.Duration(i)*step)); err != nil {
			return nil, err
		}
		times = append(times, time.Now().UnixMicro())
		if _, err := e.client.Do(ctx, touch(keys[i%len(keys)])); err != nil {
			return nil, e.failed(err)
		}
	}
	return times, nil
}

func sleepUntil(ctx context.Context, at time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(at)):
		return nil
	}
}

// touchShare touches so many of a hundred keys, evenly spread, as fast as it goes, and gives how many.
func (e *etcd) touchShare(ctx context.Context, keys []string, percent float64) (int, error) {
	if percent < 0 || percent > 100 {
		return 0, fmt.Errorf("%v percent is no share", percent)
	}
	count := int(float64(len(keys)) * percent / 100)
	operations := make([]clientv3.Op, 0, transactionOperations)
	for i := range count {
		operations = append(operations, touch(keys[i*len(keys)/count]))
		if len(operations) == transactionOperations || i == count-1 {
			if _, err := e.client.Txn(ctx).Then(operations...).Commit(); err != nil {
				return 0, e.failed(err)
			}
			operations = operations[:0]
		}
	}
	return count, nil
}
