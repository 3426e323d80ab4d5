package main

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// masters returns a client for each server that has keys: of a Cluster all masters, in the order of their addresses.
func masters(ctx context.Context, client redis.UniversalClient) ([]*redis.Client, error) {
	switch client := client.(type) {
	case *redis.Client:
		return []*redis.Client{client}, nil
	case *redis.ClusterClient:
		var mu sync.Mutex // protects all
		var all []*redis.Client
		err := client.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, master)
			return nil
		})
		slices.SortFunc(all, func(a, b *redis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
		return all, err
	}
	panic("connect returns no other client")
}
