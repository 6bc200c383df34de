package fsm

import "github.com/bourse-dev/bourse/allocation"

// EncodeResult encodes a result for the internal RPC.
func EncodeResult(r *Result) []byte { return appendResult(nil, r) }

// DecodeResult decodes what EncodeResult wrote. It is safe on hostile bytes.
func DecodeResult(b []byte) (Result, error) { return parseResult(b) }

func appendResult(b []byte, r *Result) []byte {
	b = putUint(b, 1, uint64(r.Revision))
	if r.Refusal != nil {
		b = putMessage(b, 2, r.Refusal, appendRefusal)
	}
	return putUint(b, 3, r.Epoch)
}

func parseResult(b []byte) (r Result, err error) {
	d := decoder{rest: b}
	for d.next(0) {
		switch d.num {
		case 1:
			r.Revision = Revision(d.uint())
		case 2:
			r.Refusal = one(&d, parseRefusal)
		case 3:
			r.Epoch = d.uint()
		default:
			d.unknown()
		}
	}
	return r, d.err
}

func appendRefusal(b []byte, r *Refusal) []byte {
	b = putUint(b, 1, uint64(r.Kind))
	b = putText(b, 2, r.Key)
	b = putUint(b, 3, uint64(r.Part))
	b = putText(b, 4, r.Lack.Resource)
	b = putInt(b, 5, r.Lack.Requested)
	b = putInt(b, 6, r.Lack.Available)
	return putUint(b, 7, uint64(r.Revision))
}

func parseRefusal(b []byte) (r Refusal, err error) {
	var lack allocation.Lack
	d := decoder{rest: b}
	for d.next(0) {
		switch d.num {
		case 1:
			r.Kind = RefusalKind(d.upTo(uint64(RefusedInvalid)))
		case 2:
			r.Key = d.text(MaxTextBytes)
		case 3:
			r.Part = Part(d.upTo(uint64(PartLease)))
		case 4:
			lack.Resource = d.text(MaxResourceBytes)
		case 5:
			lack.Requested = d.int()
		case 6:
			lack.Available = d.int()
		case 7:
			r.Revision = Revision(d.uint())
		default:
			d.unknown()
		}
	}
	r.Lack = lack
	return r, d.err
}

// remembered is one result in the table of results.
type remembered struct {
	id     RequestID
	result Result
}

func appendRemembered(b []byte, r *remembered) []byte {
	b = putID(b, r.id)
	return putMessage(b, 3, &r.result, appendResult)
}

func parseRemembered(b []byte) (r remembered, err error) {
	d := decoder{rest: b}
	told := false
	for d.next(0) {
		switch d.num {
		case 1:
			r.id.Seen = Revision(d.uint())
		case 2:
			r.id.Random = d.uint()
		case 3:
			if result := one(&d, parseResult); result != nil {
				r.result, told = *result, true
			}
		default:
			d.unknown()
		}
	}
	if d.err == nil && !told {
		d.fail(ErrCorrupt, "an id without its result")
	}
	return r, d.err
}
