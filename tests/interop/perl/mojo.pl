# Mojo::RabbitMQ::Client: declare, publish, consume with acknowledgements. Arguments: host, port. A line for each step.
use strict;
use warnings;
use Mojo::IOLoop;
use Mojo::RabbitMQ::Client;

my ($host, $port) = @ARGV;
$| = 1;
my $client = Mojo::RabbitMQ::Client->new(url => "amqp://guest:guest\@$host:$port/");
$client->on(error => sub { die "error: $_[1]" });
Mojo::IOLoop->timer(20 => sub { print "nothing came\n"; exit 1 });
my @got;
$client->on(open => sub {
    print "connected\n";
    my $channel = Mojo::RabbitMQ::Client::Channel->new;
    $channel->on(error => sub { print "channel: $_[1]\n"; exit 1 });
    $channel->on(open => sub {
        print "channel\n";
        $channel->declare_queue_p(queue => 'mojo.q', exclusive => 1)->then(sub {
            print "queue\n";
            my $consumer = $channel->consume(queue => 'mojo.q', no_ack => 0);
            $consumer->on(success => sub {
                print "consuming\n";
                $channel->publish(exchange => '', routing_key => 'mojo.q', body => "body $_")->deliver for 1 .. 20;
            });
            $consumer->on(message => sub {
                my ($self, $message) = @_;
                push @got, $message->{body}->payload;
                $channel->ack(delivery_tag => $message->{deliver}->method_frame->delivery_tag)->deliver;
                return if @got < 20;
                print "20 got in order: ", (join(' ', @got) eq join(' ', map { "body $_" } 1 .. 20) ? 'yes' : "@got"), "\n";
                $client->on(close => sub { print "closed\n"; Mojo::IOLoop->stop });
                $client->close;
            });
            $consumer->deliver;
        });
    });
    $client->open_channel($channel);
});
$client->connect;
Mojo::IOLoop->start;
