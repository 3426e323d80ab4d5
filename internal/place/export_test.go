package place

// CountResources returns for how many Redis clients resources are registered.
func CountResources() (n int) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	for _, all := range registry.byHash {
		n += len(all)
	}
	return n
}
