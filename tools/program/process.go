package program

import (
	"crypto/rand"
	"os"
	"sync"
)

// A Process is a program that runs for longer than a call, and communicates
// over its standard input and output. Its family ends like that of a call: when
// the program ends, with Kill, and when this process ends in any way.
type Process struct {
	Stdin  *os.File // to the program; closing it tells the program to end
	Stdout *os.File // from the program; the reader closes it
	Stderr *os.File // likewise

	done  chan struct{}
	kill  func()
	ended func() string
	once  sync.Once
}

// Start starts a program as p describes, without the variables of a call. It
// ignores MaxOutput and MediaType.
func Start(p Program) (*Process, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	path, err := Find(p.Argv[0])
	if err != nil {
		return nil, err
	}
	mark := rand.Text()
	x := execution{path: path, argv: p.Argv, dir: p.Dir, mark: mark, env: append(append([]string{}, p.Env...),
		EnvFamily+"="+mark)}
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

// Done returns a channel that is closed when the program and its family have
// ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill starts to end the program and its family, and returns at once.
func (p *Process) Kill() { p.once.Do(p.kill) }

// Ended returns how the program ended, in words that can follow "the program".
// Call it only after Done is closed.
func (p *Process) Ended() string { return p.ended() }
