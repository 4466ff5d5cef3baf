# AnyEvent::RabbitMQ: declare, bind, publish with confirms, consume with acknowledgements, two channels, a channel that
# fails. Arguments: host, port. Prints a line for each step.
use strict;
use warnings;
use AnyEvent;
use AnyEvent::RabbitMQ;

my ($host, $port) = @ARGV;
$| = 1;

sub wait_for {
    my ($what, $start) = @_;
    my $done = AnyEvent->condvar;
    my $timer = AnyEvent->timer(after => 20, cb => sub { $done->croak("$what: nothing came") });
    $start->(
        on_success => sub { $done->send(@_) },
        on_failure => sub { my $why = shift; $done->croak("$what: " . (ref $why ? $why->method_frame->reply_text : $why)) },
    );
    my @got = $done->recv;
    print "$what\n";
    return $got[0];
}

my $closed = AnyEvent->condvar;
my $client = AnyEvent::RabbitMQ->new->load_xml_spec;
wait_for('connected', sub {
    $client->connect(
        host => $host, port => $port, user => 'guest', pass => 'guest', vhost => '/', timeout => 20,
        tune => { heartbeat => 0 }, on_close => sub { }, @_,
    );
});
my $channel = wait_for('channel', sub { $client->open_channel(@_, on_close => sub { }) });
wait_for('confirms', sub { $channel->confirm(@_) });
wait_for('exchange', sub { $channel->declare_exchange(exchange => 'perl.x', type => 'topic', auto_delete => 1, @_) });
my $queue = wait_for('queue', sub { $channel->declare_queue(queue => 'perl.q', exclusive => 1, @_) });
wait_for('bound', sub {
    $channel->bind_queue(queue => 'perl.q', exchange => 'perl.x', routing_key => 'a.#', @_);
});

my ($confirmed, @got) = (0);
my $all = AnyEvent->condvar;
my $guard = AnyEvent->timer(after => 20, cb => sub { $all->croak("got @got, $confirmed confirmed") });
wait_for('consuming', sub {
    $channel->consume(
        queue => 'perl.q', no_ack => 0, @_,
        on_consume => sub {
            my $message = shift;
            push @got, $message->{body}->payload . '/' . $message->{header}->headers->{number};
            $channel->ack(delivery_tag => $message->{deliver}->method_frame->delivery_tag);
            $all->send if @got == 20 && $confirmed == 20;
        },
    );
});
for my $number (1 .. 20) {
    $channel->publish(
        exchange => 'perl.x', routing_key => "a.$number", body => "body $number",
        header => { delivery_mode => 2, headers => { number => $number } },
        on_ack => sub { $confirmed++; $all->send if @got == 20 && $confirmed == 20 },
    );
}
$all->recv;
print "20 confirmed, got in order: ", (join(' ', @got) eq join(' ', map { "body $_/$_" } 1 .. 20) ? 'yes' : "@got"), "\n";

my $failed = AnyEvent->condvar;
my $other = wait_for('another channel', sub { $client->open_channel(@_, on_close => sub { $failed->send(shift->method_frame->reply_code) }) });
$other->declare_queue(queue => 'perl.none', passive => 1, on_success => sub { $failed->croak('it is there') });
print 'refused with ', $failed->recv, "\n";
wait_for('deleted', sub { $channel->delete_queue(queue => 'perl.q', @_) });
wait_for('closed', sub { $client->close(@_) });
