package main

import (
	"context"
	"encoding/json"
	"errors"
)

// order is one of these; the first two are bare words in JSON, the others objects of one field.
type order struct {
	// How many watches of pods are open?
	watches bool
	// Start kube-apiserver anew on the same etcd.
	restart bool
	// Update so many pods, so many a second.
	Update *struct{ Rate, Count int }
	// Update so many of a hundred pods, as fast as it goes.
	Touch *struct{ Percent float64 }
}

func (o *order) UnmarshalJSON(text []byte) error {
	var word string
	if json.Unmarshal(text, &word) == nil {
		o.watches, o.restart = word == "Watches", word == "Restart"
		return nil
	}
	type fields order // Without this method.
	return json.Unmarshal(text, (*fields)(o))
}

// answer does what a line orders and says the answer.
func (s *side) answer(ctx context.Context, line []byte) error {
	var asked order
	if err := json.Unmarshal(line, &asked); err != nil {
		return err
	}
	name, value, err := s.do(ctx, asked)
	if err != nil {
		return err
	}
	return say(map[string]any{name: value})
}

// do gives the answer's name and what it is.
func (s *side) do(ctx context.Context, asked order) (string, any, error) {
	switch {
	case asked.watches:
		count, err := s.server.watches(ctx)
		return "Watches", max(0, count-s.own), err
	case asked.restart:
		s.server.stop()
		ready, err := s.server.start(ctx)
		return "Restarted", restarted{Process: s.server.pid(), ReadyMS: ready}, err
	case asked.Update != nil:
		times, err := s.etcd.update(ctx, s.keys, asked.Update.Rate, asked.Update.Count)
		return "Updated", times, err
	case asked.Touch != nil:
		count, err := s.etcd.touchShare(ctx, s.keys, asked.Touch.Percent)
		return "Touched", count, err
	}
	return "", nil, errors.New("no such order")
}
