package allocation

import "fmt"

// Policy is how the score weighs a cluster's spare capacity against its price.
type Policy struct {
	ResourceWeight int64
	CostWeight     int64
}

// maxWeight keeps every product of a score below 2^63: 1000 * 2 * 1e9 * 1000.
const maxWeight = 1000

// DefaultPolicy is 70 parts spare capacity, 30 parts price.
func DefaultPolicy() Policy { return Policy{ResourceWeight: 70, CostWeight: 30} }

// Validate says what is wrong with the weights.
func (p Policy) Validate() error {
	if p.ResourceWeight < 0 || p.CostWeight < 0 || p.ResourceWeight > maxWeight || p.CostWeight > maxWeight {
		return fmt.Errorf("policy %s: weights must be from 0 to %d", p, maxWeight)
	}
	if p.total() == 0 {
		return fmt.Errorf("policy %s: one weight must be above 0", p)
	}
	return nil
}

// String names the weights as the API shows them.
func (p Policy) String() string {
	return fmt.Sprintf("resource=%d,cost=%d", p.ResourceWeight, p.CostWeight)
}

func (p Policy) total() int64 { return p.ResourceWeight + p.CostWeight }

// score of a feasible cluster, rounded down.
func (p Policy) score(resourceScore, costScore int64) int64 {
	return (p.ResourceWeight*resourceScore + p.CostWeight*costScore) / p.total()
}
