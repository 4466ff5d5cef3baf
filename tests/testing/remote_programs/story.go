// What a test in Go does; prints "ok" at the end.
package main

import (
	"errors"
	"fmt"
	"strings"

	"story/leverettest"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func check(holds bool, what string) {
	if !holds {
		panic(what)
	}
}

func main() {
	broker, err := leverettest.Start()
	must(err)
	shop, err := broker.NewVhost("")
	must(err)
	check(strings.HasPrefix(shop.URL, "amqp://guest:guest@127.0.0.1:"), shop.URL)
	order := leverettest.Args{"id": 7, "total": 9}
	err = shop.Call("inject", leverettest.Args{"routing_key": "orders", "json": order, "vhost": shop.Vhost}, nil)
	check(err != nil && strings.Contains(err.Error(), "no queue 'orders'"), "nowhere") // it was published all the same
	published, err := shop.Published(nil)
	must(err)
	check(len(published) == 1 && published[0].RoutingKey == "orders", "published")
	partly := leverettest.Args{"$partial": leverettest.Args{"id": 7}}
	must(shop.AssertPublished(leverettest.Args{"routing_key": "orders", "body": partly}))
	must(shop.AssertNotPublished(leverettest.Args{"routing_key": "invoices"}))
	var notSo *leverettest.NotSo
	check(errors.As(shop.AssertPublished(leverettest.Args{"body": leverettest.Args{"id": 8}}), &notSo), "not so")
	check(errors.As(shop.AssertQueue("orders", nil), &notSo) && strings.Contains(notSo.Text, "no queue 'orders'"), "queue")
	err = shop.Call("asert_queue", nil, nil)
	check(err != nil && !errors.As(err, new(*leverettest.NotSo)), "typing error")
	must(broker.Advance(leverettest.Args{"hours": 2}))
	var clock struct{ Elapsed float64 }
	must(broker.Call("clock", nil, &clock))
	check(clock.Elapsed >= 7200, "time")
	stop, err := shop.Fault("block", nil)
	must(err)
	must(stop())
	must(shop.Settled())
	must(shop.Reset())
	published, err = shop.Published(nil)
	must(err)
	check(len(published) == 0, "reset")
	must(shop.Close())
	must(broker.Close())
	fmt.Println("ok")
}
