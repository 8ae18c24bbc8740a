package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// hello is what the child says first.
type hello struct {
	Address string `json:"address"`
	// Watches begin here.
	Revision int64  `json:"revision"`
	Token    string `json:"token"`
	CA       string `json:"ca"`
	// Whose memory and processor time count.
	Process int   `json:"process"`
	ReadyMS int64 `json:"ready_ms"`
}

type restarted struct {
	Process int   `json:"process"`
	ReadyMS int64 `json:"ready_ms"`
}

// side is etcd, kube-apiserver on it, and what the orders are about.
type side struct {
	etcd   *etcd
	server *apiserver
	// The pods' keys, in the order of the updates.
	keys []string
	// Watches of pods that kube-apiserver itself has open.
	own int
}

// child is the other side of a measurement: a kube-apiserver full of pods. It says where that listens in one
// line of JSON, then does what lines on its standard input say and answers each with one line of JSON. It
// ends with its standard input or on SIGTERM, and what it started ends with it, however it ends.
func child(arguments []string) error {
	// The thread must live as long as the process: see start.
	runtime.LockOSThread()
	flags := flag.NewFlagSet("child", flag.ExitOnError)
	pods := flags.Int("pods", 0, "pods in etcd; the updates go round among them")
	from := flags.String("from", "", "file of the pods, one JSON object a line")
	_ = flags.Parse(arguments) // It exits on an error.
	if *pods < 1 || *from == "" {
		return errors.New("child needs -pods, one at least, and -from")
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	dir, err := os.MkdirTemp("", "masthead-kube-apiserver-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := new(side)
	defer s.stop()
	greeting, err := s.start(ctx, dir, *from, *pods)
	if err == nil {
		err = say(greeting)
	}
	if err == nil {
		err = s.obey(ctx)
	}
	if ctx.Err() != nil {
		return nil // It was told to end; what that interrupted is no error.
	}
	return err
}

func (s *side) start(ctx context.Context, dir, from string, pods int) (*hello, error) {
	var err error
	if s.etcd, err = startEtcd(ctx, dir); err != nil {
		return nil, err
	}
	if s.keys, err = fill(ctx, s.etcd.client, from, pods); err != nil {
		return nil, err
	}
	if s.server, err = newAPIServer(dir, s.etcd.address, s.keys[0]); err != nil {
		return nil, err
	}
	ready, err := s.server.start(ctx)
	if err != nil {
		return nil, err
	}
	if s.own, err = s.server.watches(ctx); err != nil {
		return nil, err
	}
	// The cache knows of no event before its first list, so a watch must not begin before that.
	now, err := s.etcd.client.Get(ctx, s.keys[0])
	if err != nil {
		return nil, s.etcd.failed(err)
	}
	return &hello{
		Address: s.server.address, Revision: now.Header.Revision, Token: s.server.token,
		CA: s.server.ca, Process: s.server.pid(), ReadyMS: ready,
	}, nil
}

// stop kills what was started.
func (s *side) stop() {
	if s.server != nil && s.server.process != nil {
		s.server.stop()
	}
	if s.etcd != nil {
		_ = s.etcd.client.Close() // It has nothing left to say.
		s.etcd.stop()
	}
}

// obey answers orders until there are no more.
func (s *side) obey(ctx context.Context) error {
	lines := make(chan string)
	go func() {
		defer close(lines)
		input := bufio.NewScanner(os.Stdin)
		for input.Scan() {
			lines <- input.Text()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case line, more := <-lines:
			if !more {
				return nil
			}
			if err := s.answer(ctx, []byte(line)); err != nil {
				return fmt.Errorf("order %s: %w", line, err)
			}
		}
	}
}

func say(words any) error { return json.NewEncoder(os.Stdout).Encode(words) }
