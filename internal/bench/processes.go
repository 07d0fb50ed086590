package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// A part is what one process of the benchmark does.
type part interface {
	// run runs a load.
	run(ctx context.Context, l load) (outcome, error)
	// url returns the URL at which other processes reach the part; empty: none.
	url() string
	close() error
}

// A setup tells a part what it works with.
type setup struct {
	Database string   // URL
	Model    string   // URL of the model server
	API      string   // URL of the worker's API
	Agents   string   // folder of the worker's agents
	Slots    int      // turns that the worker runs at a time
	Roles    []string // of the worker; nil: all
}

// parts are the processes of the benchmark, by the name that the hidden command takes.
var parts = map[string]func(context.Context, setup) (part, error){
	"model":        startModel,
	"worker":       startWorker,
	"sender":       startSender,
	"floor":        startFloor,
	"end-floor":    startEndFloor,
	"river":        startRiver,
	"river-sender": startRiverSender,
}

// A response of a part to its setup or to a load.
type response struct {
	URL     string
	Outcome outcome
	Error   string
}

// Part runs this process as a part of a benchmark. It reads a setup and then loads from in, one JSON
// value each, and writes one answer for each to out. It returns when in or ctx ends.
func Part(ctx context.Context, name string, in io.Reader, out io.Writer) (err error) {
	start := parts[name]
	if start == nil {
		return fmt.Errorf("the benchmark has no process named %q", name)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	var s setup
	if err := requests.Decode(&s); err != nil {
		return fmt.Errorf("the benchmark's process got no setup: %w", err)
	}
	p, err := start(ctx, s)
	if err != nil {
		return errors.Join(err, answers.Encode(response{Error: err.Error()}))
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if err := answers.Encode(response{URL: p.url()}); err != nil {
		return err
	}
	loads := make(chan load)
	go func() {
		defer cancel() // also while a load runs: whoever sent it is gone
		for {
			var l load
			if requests.Decode(&l) != nil {
				return
			}
			select {
			case loads <- l:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case l := <-loads:
			o, err := p.run(ctx, l)
			a := response{Outcome: o}
			if err != nil {
				a.Error = err.Error()
			}
			if err := answers.Encode(a); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// A process is a running part.
type process struct {
	name    string
	cmd     *exec.Cmd
	url     string
	in      io.WriteCloser
	loads   *json.Encoder
	answers *json.Decoder
	stderr  *bytes.Buffer // read it after Wait
	close   func() error
}

// stopTimeout limits the time that a process takes to stop.
const stopTimeout = 20 * time.Second

// startProcess starts this program again as a part of the benchmark, and waits until it is ready.
func startProcess(ctx context.Context, name string, s setup) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: name, cmd: exec.CommandContext(ctx, program, "bench", "process", name), stderr: &bytes.Buffer{}}
	p.cmd.Stderr, p.cmd.WaitDelay = p.stderr, stopTimeout
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	p.cmd.Cancel = p.in.Close
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.loads, p.answers = json.NewEncoder(p.in), json.NewDecoder(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.close = sync.OnceValue(p.stop)
	a, err := p.ask(s)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	p.url = a.URL
	return p, nil
}

func (p *process) run(l load) (outcome, error) {
	a, err := p.ask(l)
	return a.Outcome, err
}

func (p *process) ask(question any) (a response, err error) {
	if err = p.loads.Encode(question); err == nil {
		err = p.answers.Decode(&a)
	}
	if err != nil {
		return a, errors.Join(fmt.Errorf("the benchmark's process %q does not answer: %w", p.name, err), p.close())
	}
	if a.Error != "" {
		return a, fmt.Errorf("the benchmark's process %q: %s", p.name, a.Error)
	}
	return a, nil
}

// stop lets the process end by closing its input.
func (p *process) stop() error {
	_ = p.in.Close()
	timeout := time.AfterFunc(stopTimeout, func() { _ = p.cmd.Process.Kill() })
	defer timeout.Stop()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("the benchmark's process %q failed: %w: %s", p.name, err, bytes.TrimSpace(p.stderr.Bytes()))
	}
	return nil
}
