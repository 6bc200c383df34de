package history

import (
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Action of a client on one object.
type Action uint8

// The actions. Begin is how an object stood when a window began.
const (
	Begin Action = iota
	Create
	Write
	Delete
	Get
)

func (a Action) String() string { return [...]string{"begin", "create", "write", "delete", "get"}[a] }

// Outcome of an action.
type Outcome uint8

// The outcomes. What surely changed and told nothing is no outcome and is not recorded.
const (
	Done Outcome = iota
	Exists
	Missing
	Unknown
)

func (o Outcome) String() string { return [...]string{"done", "exists", "missing", "unknown"}[o] }

// Op is one action of one client. Value is what it wrote, or read; "" where nothing was there.
type Op struct {
	Client       int
	Key          string
	Action       Action
	Outcome      Outcome
	Value        string
	Call, Return time.Duration // since the run began
}

// register is the object as porcupine sees it: the name of the operation that wrote it last, "" where it is absent.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		value, op, outcome := state.(string), input.(Op), output.(Op).Outcome
		there := value != ""
		if outcome == Missing {
			return !there, value
		}
		if outcome == Exists {
			return there, value
		}
		done := outcome == Done
		switch op.Action {
		case Begin:
			return true, op.Value
		case Create:
			if there {
				return !done, value
			}
			return true, op.Value
		case Write:
			if !there {
				return !done, value
			}
			return true, op.Value
		case Delete:
			return there || !done, ""
		default:
			return output.(Op).Value == value, value
		}
	},
	DescribeOperation: func(input, output any) string {
		in, out := input.(Op), output.(Op)
		return in.Action.String() + " " + in.Value + ": " + out.Outcome.String()
	},
}

// Registers are the windows that porcupine looks at, one for each object.
type Registers struct {
	mu    sync.Mutex
	ops   map[string][]Op
	begin map[string]string
}

// NewRegisters have seen nothing.
func NewRegisters() *Registers {
	return &Registers{ops: map[string][]Op{}, begin: map[string]string{}}
}

// Add an operation. One of unknown outcome stays open to the end of its window.
func (r *Registers) Add(op Op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops[op.Key] = append(r.ops[op.Key], op)
}

// Open are the objects with an operation of unknown outcome that happened does not know of. It is asked before the last
// reads of a window: what comes to pass after them is not how the next one begins.
func (r *Registers) Open(happened func(op string) bool) map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	open := map[string]bool{}
	for key, ops := range r.ops {
		for _, op := range ops {
			if op.Outcome == Unknown && (op.Action == Delete || !happened(op.Value)) {
				open[key] = true
			}
		}
	}
	return open
}

// Window is the operations on one object between two moments of quiet.
type Window struct {
	Key string
	Ops []Op
}

// Cut ends all windows. The last read of each object, made when all was quiet, is how its next window begins.
func (r *Registers) Cut() []Window {
	r.mu.Lock()
	defer r.mu.Unlock()
	var windows []Window
	for _, key := range sortedKeys(r.ops) {
		ops := r.ops[key]
		first := Op{Key: key, Action: Begin, Value: r.begin[key], Call: -2, Return: -1}
		windows = append(windows, Window{key, append([]Op{first}, ops...)})
		r.begin[key] = ops[len(ops)-1].Value
	}
	r.ops = map[string][]Op{}
	return windows
}

// Drop forgets how an object stands: its name is not used any more.
func (r *Registers) Drop(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.begin, key)
}

// Judge whether the window can be put into one order; false: not within the time.
func (w Window) Judge(within time.Duration) (decided bool, err error) {
	switch porcupine.CheckOperationsTimeout(register, w.operations(math.MaxInt64), within) {
	case porcupine.Ok:
		return true, nil
	case porcupine.Illegal:
		return true, violation("what clients were told of %s fits no order (%d operations)", w.Key, len(w.Ops))
	default:
		return false, nil
	}
}

// Draw porcupine's picture of the window.
func (w Window) Draw(to io.Writer) error {
	end := int64(0)
	for _, op := range w.Ops {
		end = max(end, int64(op.Return))
	}
	_, info := porcupine.CheckOperationsVerbose(register, w.operations(end+1), time.Minute)
	return porcupine.Visualize(register, info, to)
}

// Write the operations, one a line.
func (w Window) Write(to io.Writer) error {
	for _, op := range w.Ops {
		if _, err := fmt.Fprintf(to, "%v to %v  client %d  %s %s: %s\n", op.Call, op.Return, op.Client, op.Action, op.Value, op.Outcome); err != nil {
			return err
		}
	}
	return nil
}

func (w Window) operations(open int64) []porcupine.Operation {
	list := make([]porcupine.Operation, 0, len(w.Ops))
	strangers := 1 << 20 // open operations outlive their clients' next ones: each gets a line of its own
	for _, op := range w.Ops {
		o := porcupine.Operation{ClientId: op.Client, Input: op, Output: op, Call: int64(op.Call), Return: int64(op.Return)}
		if op.Outcome == Unknown {
			o.Return, o.ClientId = open, strangers
			strangers++
		}
		list = append(list, o)
	}
	return list
}
