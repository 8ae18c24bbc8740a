package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// A first start with very many pods takes this long at the most.
	patience = 10 * time.Minute
	// Often enough to time a start, seldom enough not to slow it.
	poll = 20 * time.Millisecond
	// Lines of a process's log in an error about it.
	tailLines = 20
)

// process is this program in another role.
type process struct {
	role    string
	logPath string
	command *exec.Cmd
	ended   chan struct{}
}

// start starts this program in another role; what it says goes to a file in the folder. The system kills
// it when the thread that starts it ends, so only the goroutine that is locked to its thread may call this.
func start(dir, role string, flags []string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{role: role, logPath: filepath.Join(dir, role+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.command = exec.Command(self, append([]string{role}, flags...)...)
	p.command.Stdout, p.command.Stderr = log, log
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", role, err)
	}
	go func() {
		_ = p.command.Wait() // It is killed in the end; how it ended tells nothing.
		close(p.ended)
	}()
	return p, nil
}

func (p *process) pid() int { return p.command.Process.Pid }

// stop kills the process and waits until it is gone, and its ports with it.
func (p *process) stop() {
	_ = p.command.Process.Kill() // It may be gone already.
	<-p.ended
}

// await asks until the answer is no error; why it never was is in the error, with the end of the log.
func (p *process) await(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return p.failed(errors.New("it ended"))
		case <-ctx.Done():
			return p.failed(err)
		case <-time.After(poll):
		}
	}
}

// failed is an error of this process with the last lines of its log.
func (p *process) failed(err error) error {
	text, _ := os.ReadFile(p.logPath) // No log, no lines.
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines = lines[max(0, len(lines)-tailLines):]
	return fmt.Errorf("%s: %w; its last words:\n%s", p.role, err, strings.Join(lines, "\n"))
}

// freePort gives a port below those that the system hands out to clients: while the server is down between
// two starts, no client's end takes its port.
func freePort() (int, error) {
	const first, last, attempts = 20_000, 30_000, 100
	for range attempts {
		port := first + rand.IntN(last-first)
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, listener.Close()
		}
	}
	return 0, errors.New("no free port")
}
