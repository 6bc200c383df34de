package cluster

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/bourse-dev/bourse/fsm"
)

// handlers of the internal RPC.
func (n *Node) handlers() map[method]handler {
	return map[method]handler{
		methodSubmitTxn: func(ctx context.Context, _ hello, payload []byte) ([]byte, error) {
			txn, err := fsm.DecodeTxn(payload)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
			}
			return n.answerIntent(ctx, NewIntent(&txn, nil))
		},
		methodSubmitReport: func(ctx context.Context, _ hello, payload []byte) ([]byte, error) {
			report, err := fsm.DecodeReport(payload)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
			}
			return n.answerIntent(ctx, NewIntent(nil, &report))
		},
		methodReadIndex: func(ctx context.Context, _ hello, _ []byte) ([]byte, error) {
			revision, err := n.readIndexHere(ctx)
			return encodeRevision(revision), err
		},
		methodStatus: func(context.Context, hello, []byte) ([]byte, error) {
			return json.Marshal(n.selfReport())
		},
		methodJoin:       jsonHandler(n.handleJoin),
		methodOffer:      jsonHandler(n.handleOffer),
		methodTransfer:   jsonHandler(n.handleTransfer),
		methodRemovePeer: jsonHandler(n.handleRemovePeer),
		methodStop:       jsonHandler(n.handleStop),
	}
}

// allow: nodes of another exchange, or of none yet, may only ask for a pledge and look.
func (n *Node) allow(peer hello, m method) error {
	if m == methodOffer || m == methodStatus {
		return nil
	}
	self, _, cluster := n.self()
	return sameCluster(peer, self, cluster)
}

func (n *Node) answerIntent(ctx context.Context, intent *Intent) ([]byte, error) {
	result, err := n.submitHere(ctx, intent)
	if err != nil {
		return nil, err
	}
	return fsm.EncodeResult(&result), nil
}

func encodeRevision(r fsm.Revision) []byte { return binary.BigEndian.AppendUint64(nil, uint64(r)) }

func decodeRevision(b []byte) (fsm.Revision, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("%w: revision of %d bytes", ErrInvalid, len(b))
	}
	return fsm.Revision(binary.BigEndian.Uint64(b)), nil
}

// jsonHandler is for the calls that are rare: membership and administration.
func jsonHandler[Q, A any](handle func(context.Context, hello, Q) (A, error)) handler {
	return func(ctx context.Context, peer hello, payload []byte) ([]byte, error) {
		var question Q
		if err := json.Unmarshal(payload, &question); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		answer, err := handle(ctx, peer, question)
		if err != nil {
			return nil, err
		}
		return json.Marshal(answer)
	}
}

// callJSON is the calling end of jsonHandler.
func callJSON[A any](ctx context.Context, n *Node, id, addr string, m method, question any) (answer A, sent bool, err error) {
	payload, err := json.Marshal(question)
	if err != nil {
		return answer, false, err
	}
	data, sent, err := n.callers.call(ctx, id, addr, m, payload)
	if err != nil {
		return answer, sent, err
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return answer, true, fmt.Errorf("answer of node %s: %w", id, err)
	}
	return answer, true, nil
}

// nothing is an answer without content.
type nothing struct{}
