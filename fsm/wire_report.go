package fsm

import "fmt"

// EncodeReport encodes one Report for the internal RPC. It fails where it exceeds a limit.
func EncodeReport(r *Report) ([]byte, error) {
	b := appendReport(nil, r)
	if _, err := DecodeReport(b); err != nil {
		return nil, fmt.Errorf("encode report: %w", err)
	}
	return b, nil
}

// DecodeReport decodes what EncodeReport wrote. It is safe on hostile bytes and keeps none of b.
func DecodeReport(b []byte) (Report, error) {
	if len(b) > MaxTxnBytes {
		return Report{}, fmt.Errorf("%w: report has %d bytes, the limit is %d", ErrTooLarge, len(b), MaxTxnBytes)
	}
	return parseReport(b)
}

func appendReport(b []byte, r *Report) []byte {
	b = putText(b, 1, r.Account)
	b = putSession(b, 2, r.Session)
	b = putBool(b, 3, r.Open)
	b = putUint(b, 4, r.Epoch)
	b = putUint(b, 5, r.Sequence)
	b = putList(b, 6, r.Facts.Allocatable, appendAmount)
	b = putList(b, 7, r.Facts.Allocated, appendAmount)
	b = putList(b, 8, r.Facts.LargestFree, appendAmount)
	return putList(b, 9, r.Use, appendHoldUse)
}

func parseReport(b []byte) (r Report, err error) {
	d := decoder{rest: b}
	for d.next(repeated(6, 7, 8, 9)) {
		switch d.num {
		case 1:
			r.Account = d.text(MaxKeyBytes)
		case 2:
			r.Session = d.session()
		case 3:
			r.Open = d.bool()
		case 4:
			r.Epoch = d.uint()
		case 5:
			r.Sequence = d.uint()
		case 6:
			r.Facts.Allocatable = more(&d, r.Facts.Allocatable, MaxResources, parseAmount)
		case 7:
			r.Facts.Allocated = more(&d, r.Facts.Allocated, MaxResources, parseAmount)
		case 8:
			r.Facts.LargestFree = more(&d, r.Facts.LargestFree, MaxResources, parseAmount)
		case 9:
			r.Use = more(&d, r.Use, MaxHoldsPerAccount, parseHoldUse)
		default:
			d.unknown()
		}
	}
	return r, d.err
}

func appendHoldUse(b []byte, u *HoldUse) []byte {
	b = putText(b, 1, u.Holder)
	b = putUint(b, 2, uint64(u.Fence))
	return putList(b, 3, u.Used, appendAmount)
}

func parseHoldUse(b []byte) (u HoldUse, err error) {
	d := decoder{rest: b}
	for d.next(repeated(3)) {
		switch d.num {
		case 1:
			u.Holder = d.text(MaxKeyBytes)
		case 2:
			u.Fence = Revision(d.uint())
		case 3:
			u.Used = more(&d, u.Used, MaxResources, parseAmount)
		default:
			d.unknown()
		}
	}
	return u, d.err
}
