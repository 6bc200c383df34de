package allocation

import "testing"

// FuzzDecodeDecision: no bytes of a ledger make the decoder panic or list more than a record can hold.
func FuzzDecodeDecision(f *testing.F) {
	m := marketOf(nil)
	var d Decision
	m.Decide(&Request{Requester: "rome", Amounts: Amounts{{Resource: CPU, Value: 4000}}}, &d)
	f.Add(EncodeDecision(nil, &d, 42))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		decision, err := DecodeDecision(data)
		if err == nil && len(decision.Candidates) > len(data) {
			t.Fatalf("%d candidates of %d bytes", len(decision.Candidates), len(data))
		}
	})
}
