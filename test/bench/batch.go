package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

const batchResource = "reservationbatches"

// inBatches makes many reservations with one request, at another node each time.
type inBatches struct {
	*members
	each int
}

// batchContenders are none where the build that is measured has no batches yet.
func batchContenders(ctx context.Context, m *members) (list []named, err error) {
	var resources metav1.APIResourceList
	data, err := m.exchange.nodes[0].rest.Get().AbsPath("/apis", broker.SchemeGroupVersion.String()).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &resources); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(resources.APIResources, func(r metav1.APIResource) bool { return r.Name == batchResource }) {
		return nil, nil
	}
	for _, each := range []int{100, 1000} {
		list = append(list, named{
			name: fmt.Sprintf("ours, batches of %d", each), contender: inBatches{m, each}, clients: 1, each: each,
		})
	}
	return list, nil
}

func (b inBatches) reserve(ctx context.Context, name string) error {
	type item struct {
		Name string                 `json:"name"`
		Spec broker.ReservationSpec `json:"spec"`
	}
	type batch struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Items []item `json:"items"`
		} `json:"spec"`
	}
	request := batch{
		TypeMeta:   metav1.TypeMeta{APIVersion: broker.SchemeGroupVersion.String(), Kind: "ReservationBatch"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
	}
	for i := range b.each {
		request.Spec.Items = append(request.Spec.Items, item{fmt.Sprint(i), reservation("default", name).Spec})
	}
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	data, err := b.exchange.next().rest.Post().Resource(batchResource).Namespace("default").
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Raw()
	if err != nil {
		return err
	}
	var answer struct {
		Status struct{ Phase, Message string } `json:"status"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return err
	}
	if answer.Status.Phase != string(broker.ReservationReserved) {
		return fmt.Errorf("%s is %s, not Reserved: %s", name, answer.Status.Phase, answer.Status.Message)
	}
	return nil
}

// batchGoals hold the reservations a second of one client with batches against the peers one by one at goalClients.
func (c *comparison) batchGoals(ours float64) []goal {
	return append(against(ours, c.betterRate(goalClients), "(a)", 20), against(ours, c.rates[upperBound][goalClients], "(c)", 3, 10)...)
}
