package main

import "testing"

func TestWhole(t *testing.T) {
	for value, want := range map[float64]string{0: "0", 7.4: "7", 999.5: "1,000", 1234567: "1,234,567", -1234: "-1,234"} {
		if got := whole(value); got != want {
			t.Errorf("whole(%v) = %q, want %q", value, got, want)
		}
	}
}

func TestDigits(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0.00", 0.12345: "0.123", 0.9999: "1.00", 1.234: "1.23", 9.999: "10.0", 12.34: "12.3", 99.96: "100", 4321: "4,321",
	} {
		if got := digits(value); got != want {
			t.Errorf("digits(%v) = %q, want %q", value, got, want)
		}
	}
}
