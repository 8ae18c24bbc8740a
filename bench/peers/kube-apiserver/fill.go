package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	// Transactions under way at once.
	fillers = 4
	// Of one pod's line; etcd takes no larger value anyway.
	lineBytes = 1 << 20
)

// fill stores the first `count` pods of a file, one JSON object a line, as kube-apiserver would have stored
// them, and gives their keys in the order of the lines.
func fill(ctx context.Context, client *clientv3.Client, path string, count int) ([]string, error) {
	lines, err := readLines(path, count)
	if err != nil {
		return nil, err
	}
	keys := make([]string, count)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fillers)
	for first := 0; first < count && ctx.Err() == nil; first += transactionOperations {
		last := min(first+transactionOperations, count)
		group.Go(func() error {
			return store(ctx, client, lines[first:last], keys[first:last])
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("cannot fill etcd: %w", err)
	}
	return keys, nil
}

func readLines(path string, count int) ([][]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := make([][]byte, 0, count)
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, lineBytes)
	for len(lines) < count && scanner.Scan() {
		lines = append(lines, bytes.Clone(scanner.Bytes()))
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(lines) < count {
		return nil, fmt.Errorf("%s has %d pods, not %d", path, len(lines), count)
	}
	return lines, nil
}

// store puts pods that make up at most one transaction's operations, and notes their keys. Large ones go in
// several transactions.
func store(ctx context.Context, client *clientv3.Client, lines [][]byte, keys []string) error {
	var operations []clientv3.Op
	size := 0
	commit := func() error {
		_, err := client.Txn(ctx).Then(operations...).Commit()
		operations, size = operations[:0], 0
		return err
	}
	for i, line := range lines {
		key, value, err := encode(line)
		if err != nil {
			return err
		}
		if size+len(value) > transactionBytes && len(operations) > 0 {
			if err := commit(); err != nil {
				return err
			}
		}
		operations, size = append(operations, clientv3.OpPut(key, string(value))), size+len(value)
		keys[i] = key
	}
	return commit()
}

// encode gives a pod's key and value in etcd: kube-apiserver stores protobuf, without the revision, which
// is etcd's.
func encode(line []byte) (string, []byte, error) {
	pod := new(corev1.Pod)
	if err := json.Unmarshal(line, pod); err != nil {
		return "", nil, err
	}
	pod.APIVersion, pod.Kind = "v1", "Pod"
	pod.ResourceVersion = ""
	var value bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(pod, &value); err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/registry/pods/%s/%s", pod.Namespace, pod.Name), value.Bytes(), nil
}
