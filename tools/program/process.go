package program

import (
	"crypto/rand"
	"os"
	"sync"
)

// A Process is a program that runs for longer than a call and is spoken to over
// its standard input and output. Its family ends as that of a call does: with
// the program, with Kill, and with this process, however that ends.
type Process struct {
	Stdin  *os.File // to the program; closing it tells the program to end
	Stdout *os.File // from the program; who reads it closes it
	Stderr *os.File // likewise

	done  chan struct{}
	kill  func()
	ended func() string
	once  sync.Once
}

// Start starts a program as p says, without the variables of a call. MaxOutput
// and MediaType do not count.
func Start(p Program) (*Process, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	path, err := Find(p.Argv[0])
	if err != nil {
		return nil, err
	}
	mark := rand.Text()
	x := execution{path: path, argv: p.Argv, dir: p.Dir, mark: mark, env: append(append([]string{}, p.Env...), EnvFamily+"="+mark)}
	var ours, theirs [3]*os.File
	for i := range theirs {
		r, w, err := os.Pipe()
		if err != nil {
			closePipes(ours[:], theirs[:])
			return nil, err
		}
		ours[i], theirs[i] = r, w
	}
	ours[0], theirs[0] = theirs[0], ours[0]
	process, err := x.startProcess(theirs[0], theirs[1], theirs[2])
	closePipes(theirs[:])
	if err != nil {
		closePipes(ours[:])
		return nil, err
	}
	process.Stdin, process.Stdout, process.Stderr = ours[0], ours[1], ours[2]
	return process, nil
}

func closePipes(groups ...[]*os.File) {
	for _, files := range groups {
		for _, f := range files {
			if f != nil {
				_ = f.Close()
			}
		}
	}
}

// Done is closed when the program has ended and its family with it.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the program and its family. It does not wait for that.
func (p *Process) Kill() { p.once.Do(p.kill) }

// Ended says how the program ended, in words that follow "the program". It may
// be called once Done is closed.
func (p *Process) Ended() string { return p.ended() }
